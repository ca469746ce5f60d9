"""Telemetry: pairs that users accepted, and redaction."""
