"""Infill rows and tasks: complete a piece of a program between the text before and after it."""

from typing import Final

INFILL: Final = "infill"
"""The `task_family` of infill rows, and their kind in shares of tokens."""

ACCEPTED: Final = "accepted"
"""The `task_family` of infill rows whose piece a user accepted."""
