"""Tests; the folders mirror `mens_pipeline`."""
