"""Judging what a model writes."""
