"""The Dagster graph: assets, checks, jobs, schedules, sensors and resources."""
