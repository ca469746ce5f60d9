"""The `mens` command: one thin module per step."""
