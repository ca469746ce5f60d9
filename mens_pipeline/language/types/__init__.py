"""Gradual types: values whose type is not clear are unknown, and fit everywhere."""
