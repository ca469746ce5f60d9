"""Faults, noise and load for as long as there is time: `python -m mens_pipeline_tests.soak --minutes 60`."""
