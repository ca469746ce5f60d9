"""Tests of reading a workspace."""
