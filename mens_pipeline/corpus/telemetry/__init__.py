"""Pairs that users accepted: the table, its limits, and what is redacted."""
