"""Tests of models as files."""
