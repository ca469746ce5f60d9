"""Owners of the assets."""

from typing import Final

OWNERS: Final = ("team:mens",)
"""Of every asset that is made; sources belong to those who write them."""
