"""Most mistakes made on purpose are found; the bench `semantics` makes many more of them."""

from collections import Counter

from mens_pipeline.language import mode_of
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline_tests.language.examples import golden_programs
from mens_pipeline_tests.language.semantics.mutations import KINDS, mutants


def test_nearly_all_mistakes_are_found() -> None:
    """Nine of ten of each kind, and 97 of a hundred in all."""
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for mutant in mutants(golden_programs(), mode_of, 1500, seed=0):
        made[mutant.kind] += 1
        found[mutant.kind] += bool(semantic_diagnostics(mutant.module, mutant.source))

    assert set(made) == set(KINDS)
    assert made.total() > 1400
    assert {kind for kind in KINDS if found[kind] < 0.9 * made[kind]} == set()
    assert found.total() >= 0.97 * made.total()
