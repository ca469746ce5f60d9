"""Tests of the Dagster graph."""
