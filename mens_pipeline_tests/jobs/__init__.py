"""Tests of jobs, which are separate processes."""
