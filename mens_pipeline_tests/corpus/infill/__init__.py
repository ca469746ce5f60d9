"""Tests of what is cut out of programs."""
