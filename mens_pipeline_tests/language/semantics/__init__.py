"""Tests of names and types."""
