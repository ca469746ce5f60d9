"""The package is no larger than `weight.tsv` allows."""

import pytest

from mens_pipeline_tests.bench.structure import (
    measure_folders,
    measure_names,
    measure_reach,
    read_modules,
    read_weights,
)

_ADVICE = (
    "figures of mens_pipeline_tests/weight.tsv are exceeded. Remove something in exchange. If the code must grow, run "
    "`python -m mens_pipeline_tests.bench.structure --write`, and say in the same commit what left in exchange."
)


def _find_excesses(
    measured: dict[str, tuple[int, ...]], allowed: dict[str, tuple[int, ...]]
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    pairs = {name: (figures, allowed.get(name, (0,) * len(figures))) for name, figures in measured.items()}
    return {
        name: (figures, room)
        for name, (figures, room) in pairs.items()
        if any(figure > most for figure, most in zip(figures, room, strict=True))
    }


def test_folders_are_no_larger_than_the_table() -> None:
    assert _find_excesses(measure_folders(read_modules()), read_weights()) == {}, _ADVICE


@pytest.mark.slow
def test_names_and_reach_are_no_larger_than_the_table() -> None:
    modules = read_modules()
    measured = measure_names(modules) | measure_reach()

    assert _find_excesses(measured, read_weights()) == {}, _ADVICE
    assert read_weights().keys() == measure_folders(modules).keys() | measured.keys()


def test_finds_growth_and_ignores_shrinkage() -> None:
    allowed = {"storage/": (100, 3), "jobs/": (50, 2), "pages of docs": (27,)}
    measured = {"storage/": (99, 4), "jobs/": (50, 2), "pages of docs": (26,), "new/": (1, 1)}

    assert _find_excesses(measured, allowed) == {"storage/": ((99, 4), (100, 3)), "new/": ((1, 1), (0, 0))}
