"""Tests of the scratch lane."""
