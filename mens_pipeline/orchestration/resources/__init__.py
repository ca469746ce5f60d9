"""What assets are handed to work with."""
