"""Rows and tasks that ask for a piece of a program between what stands before and behind it."""

from typing import Final

INFILL: Final = "infill"
"""The `task_family` of infill rows, and their kind where tokens have shares."""

ACCEPTED: Final = "accepted"
"""The `task_family` of those whose piece a user accepted."""
