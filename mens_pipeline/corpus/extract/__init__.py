"""From a workspace to records."""
