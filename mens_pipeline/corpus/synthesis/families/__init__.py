"""Every family of templates; they are files beside this one, and `docs/data.md` says how to add to them."""

from functools import cache
from pathlib import Path

from mens_pipeline.corpus.synthesis.families.templates import families_in
from mens_pipeline.corpus.synthesis.sample import Family


@cache
def load_families(folder: Path = Path(__file__).parent) -> tuple[Family, ...]:
    """Load all families, in the order of their files; their names are unique.

    Raises:
        ConfigurationError: A file cannot be read or does not fit; the message says where.
    """
    return families_in(folder)
