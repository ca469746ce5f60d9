"""Tests of the synthetic programs."""
