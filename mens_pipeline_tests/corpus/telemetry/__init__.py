"""Tests of what editors recorded."""
