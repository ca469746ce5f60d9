"""Counts as people read them."""


def share_text(part: int, whole: int) -> str:
    """Format a count with its share: `37/40 (92.5 %)`; without the share when there is nothing to divide by."""
    return f"{part}/{whole} ({100 * part / whole:.1f} %)" if whole else f"{part}/{whole}"
