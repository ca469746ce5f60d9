"""Executable tasks: functions with a stated behaviour, examples in the prompt, and hidden tests."""
