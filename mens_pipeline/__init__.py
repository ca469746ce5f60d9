"""A nightly pipeline that turns a Vox workspace into a code model."""
