"""Which rows are evolved."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.heldout_split import is_held_out
from mens_pipeline.corpus.evolution.examine import Neighbours, sort_seeds
from mens_pipeline.corpus.evolution.requests import Ledger, Reply
from mens_pipeline.corpus.schema.reasons import EvolutionDrop, NoSeed
from mens_pipeline.corpus.schema.records import Lane, SourceKind, TrainingPair
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import analyze
from mens_pipeline_tests.corpus.evolution.scripted import POLICY, function_seed, function_seeds
from mens_pipeline_tests.corpus.rows import pair_at

_HELD = next(path for path in (f"h{n}.vox" for n in range(1000)) if is_held_out(path, POLICY))
_SEEDS = function_seeds(6)


def _changed(**fields: object) -> TrainingPair:
    return _SEEDS[0].model_copy(update=fields)


def test_rows_that_cannot_be_evolved_are_counted_with_their_reasons() -> None:
    """One row a reason; held-out ones are kept away from."""
    others = [
        _SEEDS[0],
        _changed(response_mode="prose_only"),
        _changed(lane=Lane.TOOLING, prompt="p"),
        _changed(category="documentation", prompt="q"),
        _changed(prompt="Change this:\n\nfn f() { }"),
        _changed(response="fn f("),
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
    """The same for the same rows in any order; another seed, another order; the shortest program shows a construct."""
    first, again = (sort_seeds(rows, POLICY, 0).pairs for rows in (_SEEDS, _SEEDS[::-1]))
    other = sort_seeds(_SEEDS, POLICY, 1).pairs

    assert first == again
    assert first != other
    assert sorted(first, key=str) == sorted(other, key=str)
    assert sort_seeds(_SEEDS, POLICY, 0).examples == {"function": min((s.response for s in _SEEDS), key=len)}


def test_a_row_near_to_what_is_there_is_refused() -> None:
    """To a held-out pair by request, words or structure; to a seed or a row before it by structure or words."""
    held = function_seed(20, _HELD)
    renamed = held.response.replace("f20", "g").replace("a", "b")
    seeds = sort_seeds([*_SEEDS, held], POLICY, 0)
    neighbours = Neighbours(seeds, [], 0.5, POLICY)

    def refused(prompt: str, program: str) -> EvolutionDrop | None:
        module = analyze(program).module
        assert module is not None
        refusal = neighbours.refusal(pair_at(None, prompt, program), module)
        return refusal[0] if refusal is not None else None

    small = "fn tiny() {\n}\n"
    new = "type Parcel { weight: int, height: int, label: str, sender: str, receiver: str, value: int }\n"
    assert refused(held.prompt, small) is EvolutionDrop.HELDOUT_PROMPT
    assert refused("Ask.", f"// More\n{held.response}") is EvolutionDrop.HELDOUT_WORDS
    assert refused("Ask.", renamed) is EvolutionDrop.HELDOUT_STRUCTURE
    assert refused("Ask.", _SEEDS[3].response.replace("a", "zz")) is EvolutionDrop.REPEATED
    assert refused(_SEEDS[0].prompt, f"{_SEEDS[0].response}\n{small}") is EvolutionDrop.NEAR_DUPLICATE
    assert refused("Ask for a parcel with four fields.", new) is None
    assert refused("Another.", new.replace("weight", "mass").replace("Parcel", "Box")) is EvolutionDrop.REPEATED
    assert refused("Ask for next to nothing.", small) is None


def test_a_synthetic_row_has_no_file_to_be_held_out_with() -> None:
    """Its path is that of a template."""
    row = pair_at(_HELD, "p", _SEEDS[0].response, SourceKind.SYNTHETIC).model_copy(update={"category": "function"})

    assert sort_seeds([row], POLICY, 0).pairs == [row]


def test_a_ledger_holds_replies_and_nothing_else(tmp_path: Path) -> None:
    """A file of something else, or that cannot be written, is not touched."""
    reply = Reply(key="k", text="t", stopped=True, num_tokens=1)
    ledger = Ledger(tmp_path / "deep" / "ledger.jsonl")
    ledger.add(reply)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "p"}\n')

    assert ledger.find("k") == Ledger(tmp_path / "deep" / "ledger.jsonl").find("k") == reply
    assert ledger.find("other") is None
    with pytest.raises(RefusedError, match="Name another file with --ledger"):
        Ledger(tmp_path / "pairs.jsonl")
    with pytest.raises(ConfigurationError, match="Name a file that may be written"):
        Ledger(tmp_path)
    with pytest.raises(ConfigurationError, match="Name a file that may be written"):
        Ledger(tmp_path / "pairs.jsonl" / "ledger.jsonl").add(reply)


@pytest.mark.parametrize("begun", ["{", '{"key":"torn'])
def test_what_a_call_that_died_left_is_dropped(tmp_path: Path, begun: str) -> None:
    """The replies before it stay."""
    path = tmp_path / "ledger.jsonl"
    Ledger(path).add(Reply(key="k", text="x", stopped=True, num_tokens=1))
    whole = path.read_text()
    path.write_text(whole + begun)

    assert Ledger(path).find("k") is not None
    assert path.read_text() == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a letter that nobody has twice", r":1: what is left of a line is no part of a reply\. Name another file"),
        (b"a letter\nthat nobody has twice", r":1: no reply \(.*Name another file with --ledger"),
        (b'{"prompt": "x"}\n{"key":', r":1: no reply \(.*Name another file with --ledger"),
        (b"SQLite format 3\0" + b"\0" * 100, r":1: what is left of a line is no part of a reply"),
    ],
)
def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    """Named by mistake, it is refused before a byte of it is taken away."""
    path = tmp_path / "other"
    path.write_bytes(content)

    with pytest.raises(RefusedError, match=message):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_ledger_that_may_not_be_cut_is_a_mistake_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk says no."""

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    (tmp_path / "ledger.jsonl").write_text('{"key":"torn')
    monkeypatch.setattr("os.truncate", refuse)

    with pytest.raises(ConfigurationError, match=r"Read-only file system\. Name a file that may be written"):
        Ledger(tmp_path / "ledger.jsonl")
