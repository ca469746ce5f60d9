"""Faults, noise and load within a time budget: `python -m mens_pipeline_tests.soak --minutes 60`."""
