"""Tests of observed behaviour."""
