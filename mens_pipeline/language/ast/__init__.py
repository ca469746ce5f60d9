"""The typed, frozen syntax tree."""
