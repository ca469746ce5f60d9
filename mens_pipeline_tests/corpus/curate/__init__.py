"""Tests of what trains and what judges: validated, split, mixed."""
