"""Rows and tasks that ask for a piece of a program between what stands before and behind it."""
