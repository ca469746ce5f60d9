"""Mistakes that pydantic found, as one line."""

from pydantic import ValidationError


def mistakes_in(error: ValidationError) -> str:
    """All mistakes with their places: `rate: Input should be less than or equal to 1; name: Field required`.

    Args:
        error: What the validation raised.
    """
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg']}" for item in error.errors())
