"""How often adapters were tried on an exam."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import adapter_digest
from mens_pipeline.promotion.ledger import FOLDER, LEDGER, Try, record_try
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, judged, promote, trained

_FILES = tuple(f"golden/{number}.vox" for number in range(20))


def _try(adapter: str = "a", files: tuple[str, ...] = _FILES, rounds: int = 2, **decoding: Any) -> Try:
    return Try(
        adapter_sha256=adapter if len(adapter) == 64 else adapter * 64,
        decoding=Decoding(**decoding),
        first_heldout_tasks=100,
        max_rounds=rounds,
        files=files,
    )


def _recorded(store: ArtifactStore, *tries: Try) -> list[int]:
    return [record_try(store, tried, now=NOW) for tried in tries]


def _lines(store: ArtifactStore) -> list[str]:
    return (store.root / FOLDER / LEDGER).read_text().splitlines()


def test_every_adapter_on_an_exam_is_a_try(store: ArtifactStore) -> None:
    """They are counted in the order of their first evaluation, and the count outlives the process."""
    assert _recorded(store, _try("a"), _try("b"), _try("c")) == [1, 2, 3]
    assert _recorded(ArtifactStore(store.root), _try("d")) == [4]
    assert len(_lines(store)) == 4


def test_the_same_again_is_no_new_try(store: ArtifactStore) -> None:
    """Nothing was left to chance, also when it takes another amount of memory."""
    assert _recorded(store, _try("a"), _try("b"), _try("a"), _try("a", batch_tokens=512)) == [1, 2, 1, 1]
    assert len(_lines(store)) == 2


@pytest.mark.threat("M13")
@pytest.mark.parametrize(
    "again",
    [
        _try(seed=1),
        _try(temperature=0.3),
        _try(max_new_tokens=160),
        _try(rounds=1),
    ],
    ids=["seed", "temperature", "limit", "rounds"],
)
def test_drawing_again_is_a_new_try(store: ArtifactStore, again: Try) -> None:
    """The same weights, and another chance."""
    assert _recorded(store, _try(), again) == [1, 2]


@pytest.mark.parametrize(
    ("files", "attempt"),
    [
        (_FILES[:5], 2),
        (_FILES + tuple(f"new/{n}.vox" for n in range(100)), 2),
        (_FILES[:10] + tuple(f"new/{n}.vox" for n in range(10)), 2),
        (_FILES[:9] + tuple(f"new/{n}.vox" for n in range(11)), 1),
        (("other.vox",), 1),
    ],
    ids=["a part", "grown", "half new", "mostly new", "another"],
)
def test_an_exam_stays_the_same_while_half_of_its_files_do(
    store: ArtifactStore, files: tuple[str, ...], attempt: int
) -> None:
    """A smaller choice of the same files, or some more, is no fresh start."""
    assert _recorded(store, _try("a"), _try("b", files)) == [1, attempt]


def test_a_promotion_pays_for_the_tries_before_it(tmp_path: Path, store: ArtifactStore) -> None:
    """A good model can be confirmed every night; one that was taken out of use again does not count."""
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    good, withdrawn = adapter_digest(first), adapter_digest(second)
    assert _recorded(store, _try("a"), _try("b"), _try(good)) == [1, 2, 3]
    promote(judged(first, store, evaluated(first, store)), first, store, PRESENT, now=NOW)

    assert _recorded(store, _try("c"), _try("d"), _try(withdrawn)) == [1, 2, 3]
    promote(judged(second, store, evaluated(second, store)), second, store, PRESENT, now=NOW)
    assert _recorded(store, _try("e")) == [1]
    roll_back(store, now=NOW, reason="it writes nonsense")
    assert _recorded(store, _try("f")) == [5]


def test_the_champion_tried_again_pays_for_nothing(tmp_path: Path, store: ArtifactStore) -> None:
    """Or anybody could begin to count anew with another seed."""
    run = trained(tmp_path / "run")
    champion = adapter_digest(run)
    _recorded(store, _try(champion))
    promote(judged(run, store, evaluated(run, store)), run, store, PRESENT, now=NOW)

    assert _recorded(store, _try("a"), _try("b"), _try(champion, seed=2), _try("c")) == [1, 2, 3, 4]


def test_a_line_that_was_cut_off_is_taken_away(store: ArtifactStore) -> None:
    """A full disk or a lost process leaves half of it; the next try takes its place."""
    _recorded(store, _try("a"), _try("b"))
    path = store.root / FOLDER / LEDGER
    path.write_bytes(path.read_bytes()[:-40])

    assert _recorded(store, _try("c"), _try("d")) == [2, 3]
    assert len(_lines(store)) == 3


def test_a_line_in_the_middle_that_is_none_is_refused(store: ArtifactStore) -> None:
    """Nobody knows what it counted."""
    _recorded(store, _try("a"))
    path = store.root / FOLDER / LEDGER
    path.write_text("{}\n" + path.read_text())

    with pytest.raises(RefusedError, match=r"ledger\.jsonl: a line is no entry .* Restore the file from a backup"):
        _recorded(store, _try("b"))


def test_machines_that_share_a_bucket_count_tries_together(tmp_path: Path, store_url: str) -> None:
    """A second machine is no second chance."""
    tries = [_try(name) for name in "abc"]
    stores = [ArtifactStore(tmp_path / name, Remote(store_url)) for name in "abc"]

    assert [record_try(store, tried, now=NOW) for store, tried in zip(stores, tries, strict=True)] == [1, 2, 3]
    assert record_try(stores[2], tries[0], now=NOW) == 1
