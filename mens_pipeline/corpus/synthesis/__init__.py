"""Synthetic programs: tasks, templates and combinations, all checked by the front end."""
