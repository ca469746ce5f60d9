"""Tests of rows and accounts."""
