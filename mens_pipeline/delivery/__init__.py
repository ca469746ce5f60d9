"""From a promoted adapter to a served model."""
