"""Choice of the source files that measure the validation loss instead of training."""

import hashlib


def is_validation_group(group: str | None, share: float, seed: int) -> bool:
    """Return whether the rows of a source file measure; all of one file do the same, those without one train."""
    if group is None:
        return False
    digest = hashlib.sha256(f"validation:{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
