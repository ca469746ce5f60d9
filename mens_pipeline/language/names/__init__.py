"""Name resolution."""
