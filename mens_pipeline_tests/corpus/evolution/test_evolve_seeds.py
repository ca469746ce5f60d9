"""Rows that are evolved, and rows that are left out."""

from mens_pipeline.corpus.curate.heldout_split import is_held_out
from mens_pipeline.corpus.evolution.evolve import Neighbours, sort_seeds
from mens_pipeline.corpus.schema.reasons import EvolutionDrop, NoSeed, SplitReason
from mens_pipeline.corpus.schema.records import Lane, SourceKind, TrainingPair
from mens_pipeline_tests.corpus.evolution.scripted import POLICY, function_seed, function_seeds
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.language.examples import parse

_HELD = next(path for path in (f"h{n}.vox" for n in range(1000)) if is_held_out(path, POLICY))
_SEEDS = function_seeds(6)


def _change(**fields: object) -> TrainingPair:
    return _SEEDS[0].model_copy(update=fields)


def test_rows_that_cannot_be_evolved_are_counted_with_their_reasons() -> None:
    others = [
        _SEEDS[0],
        _change(response_mode="prose_only"),
        _change(lane=Lane.TOOLING, prompt="p"),
        _change(category="documentation", prompt="q"),
        _change(prompt="Change this:\n\nfn f() { }"),
        _change(response="fn f("),
        function_seed(99, _HELD),
    ]
    seeds = sort_seeds([*_SEEDS, *others], POLICY, 0)

    assert len(seeds.pairs) == len(_SEEDS)
    assert seeds.heldout == [function_seed(99, _HELD)]
    assert seeds.dropped == {
        NoSeed.REPEATED: 2,
        NoSeed.PROSE: 1,
        NoSeed.OTHER_TASK: 1,
        NoSeed.HOLDS_CODE: 1,
        NoSeed.REJECTED: 1,
        NoSeed.HELD_OUT: 1,
    }


def test_the_order_is_that_of_the_seed() -> None:
    first, again = (sort_seeds(rows, POLICY, 0).pairs for rows in (_SEEDS, _SEEDS[::-1]))
    other = sort_seeds(_SEEDS, POLICY, 1).pairs

    assert first == again
    assert first != other
    assert sorted(first, key=str) == sorted(other, key=str)
    assert sort_seeds(_SEEDS, POLICY, 0).examples == {"function": min((s.response for s in _SEEDS), key=len)}


def test_a_row_near_another_row_is_refused() -> None:
    held = function_seed(20, _HELD)
    renamed = held.response.replace("f20", "g").replace("a", "b")
    seeds = sort_seeds([*_SEEDS, held], POLICY, 0)
    neighbours = Neighbours(seeds, [], 0.5, POLICY)

    def explain(prompt: str, program: str) -> list[str] | None:
        """Return the reason, and for a held-out pair the kind of overlap."""
        module = parse(program)
        refusal = neighbours.find_reason(pair_at(None, prompt, program), module)
        return [refusal[0], *refusal[1].split(": ")[:-1]] if refusal is not None else None

    small = "fn tiny() {\n}\n"
    new = "type Parcel { weight: int, height: int, label: str, sender: str, receiver: str, value: int }\n"
    assert explain(held.prompt, small) == [EvolutionDrop.NEAR_HELD_OUT, SplitReason.PROMPT]
    assert explain("Ask.", f"// More\n{held.response}") == [EvolutionDrop.NEAR_HELD_OUT, SplitReason.WORDS]
    assert explain("Ask.", renamed) == [EvolutionDrop.NEAR_HELD_OUT, SplitReason.STRUCTURE]
    assert explain("Ask.", _SEEDS[3].response.replace("a", "zz")) == [EvolutionDrop.REPEATED]
    assert explain(_SEEDS[0].prompt, f"{_SEEDS[0].response}\n{small}") == [EvolutionDrop.REPEATED]
    assert explain("Ask for a parcel with four fields.", new) is None
    assert explain("Another.", new.replace("weight", "mass").replace("Parcel", "Box")) == [EvolutionDrop.REPEATED]
    assert explain("Ask for next to nothing.", small) is None


def test_a_synthetic_row_is_not_held_out() -> None:
    row = pair_at(_HELD, "p", _SEEDS[0].response, SourceKind.SYNTHETIC).model_copy(update={"category": "function"})

    assert sort_seeds([row], POLICY, 0).pairs == [row]
