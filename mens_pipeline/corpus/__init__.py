"""From a Vox workspace to training data."""
