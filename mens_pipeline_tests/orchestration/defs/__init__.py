"""Tests of assets, checks, schedules and sensors."""
