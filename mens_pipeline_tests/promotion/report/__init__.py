"""Tests of the page of a verdict."""
