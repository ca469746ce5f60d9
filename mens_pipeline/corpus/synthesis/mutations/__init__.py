"""Changes to accepted programs that one can ask for: each gives the request and the changed program."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.mutations.add_field import add_field
from mens_pipeline.corpus.synthesis.mutations.add_test import add_test
from mens_pipeline.corpus.synthesis.mutations.literals import change_literal
from mens_pipeline.corpus.synthesis.mutations.rename import rename
from mens_pipeline.corpus.synthesis.mutations.reorder import reorder
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample

__all__ = ["MUTATIONS", "Mutation"]

Mutation = Callable[[Program, Random], Sample | None]
"""Gives a task, or None when the program has nothing for it."""


def _of_short_programs(mutate: Mutation) -> Mutation:
    return lambda program, random: mutate(program, random) if program.is_short else None


MUTATIONS: Final[Mapping[str, Mutation]] = {
    name: _of_short_programs(mutate)
    for name, mutate in (
        ("rename", rename),
        ("reorder", reorder),
        ("literals", change_literal),
        ("add-field", add_field),
        ("add-test", add_test),
    )
}
"""Every mutation; long programs have nothing for any of them."""
