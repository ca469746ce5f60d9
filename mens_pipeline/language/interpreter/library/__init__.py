"""The built-in functions, methods and namespaces (F1-F10 of the run-time rules)."""
