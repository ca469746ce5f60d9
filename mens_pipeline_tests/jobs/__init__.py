"""Tests of jobs: processes of their own."""
