"""The `mens` command: one thin module a step."""
