"""The built-in functions, methods and namespaces (section 4 of the run-time rules)."""
