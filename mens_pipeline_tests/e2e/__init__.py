"""Tests that use the pipeline as its users do: a server, a browser, whole commands."""
