"""How often adapters were tried on an eval suite."""

import json
import shutil
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.models.adapter import adapter_digest
from mens_pipeline.promotion.ledger import FOLDER, LEDGER, EvaluationTry, find_try, record_try, sign_ledger
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.signing import Signing
from mens_pipeline.storage.store import ArtifactStore, key_of
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, promote, scored, trained
from mens_pipeline_tests.every import every

_FILES = tuple(f"golden/{number}.vox" for number in range(20))


def _try(adapter: str = "a", files: tuple[str, ...] = _FILES, rounds: int = 2, **decoding: Any) -> EvaluationTry:
    return EvaluationTry(
        adapter_sha256=adapter if len(adapter) == 64 else adapter * 64,
        decoding=Decoding(**decoding),
        first_heldout_tasks=100,
        max_rounds=rounds,
        files=files,
        rows_sha256=key_of({"rows": files}),
        device="cpu float32 dense",
    )


def _change(**changes: Any) -> EvaluationTry:
    return _try().model_copy(update=changes)


def _record(store: ArtifactStore, *tries: EvaluationTry) -> list[int]:
    return [record_try(store, tried, now=NOW).attempt for tried in tries]


def _read_lines(store: ArtifactStore) -> list[str]:
    return (store.root / FOLDER / LEDGER).read_text().splitlines()


def test_every_adapter_on_a_suite_is_a_try(store: ArtifactStore) -> None:
    """They are counted in the order of their first evaluation, and the count outlives the process."""
    assert _record(store, _try("a"), _try("b"), _try("c")) == [1, 2, 3]
    store.root.rename(moved := store.root.with_name("moved"))
    assert _record(ArtifactStore(moved), _try("d")) == [4]
    assert len({json.loads(line)["store_id"] for line in (moved / FOLDER / LEDGER).read_text().splitlines()}) == 1


def test_a_repeated_evaluation_is_not_a_new_try(store: ArtifactStore) -> None:
    assert _record(store, _try("a"), _try("b"), _try("a"), _try("a", batch_tokens=512)) == [1, 2, 1, 1]
    assert len(_read_lines(store)) == 2


@pytest.mark.threat("M13")
@every(
    "again",
    [
        *(_try(seed=1), _try(temperature=0.3), _try(max_new_tokens=160), _try(rounds=1)),
        *(_try(files=_FILES[:10]), _try(files=_FILES[10:]), _change(device="cuda bfloat16 dense")),
    ],
)
def test_another_draw_is_a_new_try(store: ArtifactStore, again: EvaluationTry) -> None:
    """The same weights with another chance: another seed, some of the rows, or another machine."""
    assert _record(ArtifactStore(store.root / again.sha256), _try(), again) == [1, 2]


@pytest.mark.threat("M13")
def test_on_a_gpu_another_batch_size_is_a_new_try(store: ArtifactStore) -> None:
    gpu = {"device": "cuda bfloat16 dense"}
    large, small = (_try(batch_tokens=size).model_copy(update=gpu) for size in (12_288, 512))

    assert _record(store, large, small, large) == [1, 2, 1]


@pytest.mark.threat("M13")
def test_the_same_rows_in_other_files_are_the_same_suite(store: ArtifactStore) -> None:
    """Names affect no completion: the same try for the same adapter, the second for another."""
    renamed = tuple(f"renamed/{number}.vox" for number in range(20))

    assert _record(store, _try(), _change(files=renamed)) == [1, 1]
    assert _record(store, _change(files=renamed, adapter_sha256="b" * 64)) == [2]


def test_lines_of_older_versions_still_count(store: ArtifactStore) -> None:
    """They name files alone; the same adapter on the same rows is still the same try."""
    older = _try()
    newer = _change(rows=("0" * 16,), benchmark_sha256="b" * 64)
    _record(store, older)
    path = store.root / FOLDER / LEDGER
    line = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in line.items() if k not in {"rows", "benchmark_sha256"}}) + "\n")

    assert _record(store, newer, newer.model_copy(update={"adapter_sha256": "b" * 64})) == [1, 2]
    assert find_try(store, older.sha256)[0] is not None


def test_a_ledger_of_a_newer_version_asks_for_an_upgrade(store: ArtifactStore) -> None:
    _record(store, _try("a"))
    path = store.root / FOLDER / LEDGER
    entry = json.loads(path.read_text())
    assert entry["format_version"] == 1
    for newer in ({"format_version": 2, "attempt": "first"}, {"machine": "b"}):
        path.write_text(json.dumps(entry | newer) + "\n")
        with pytest.raises(RefusedError, match=r"ledger\.jsonl:1: written by a newer version .*Upgrade it\.$"):
            _record(store, _try("b"))


@every(
    "case",
    [
        ("a part", _FILES[:5], 2),
        ("grown", _FILES + tuple(f"new/{n}.vox" for n in range(100)), 2),
        ("half new", _FILES[:10] + tuple(f"new/{n}.vox" for n in range(10)), 2),
        ("mostly new", _FILES[:9] + tuple(f"new/{n}.vox" for n in range(11)), 1),
        ("another", ("other.vox",), 1),
    ],
    ids=itemgetter(0),
)
def test_a_suite_stays_the_same_while_half_of_its_files_do(
    store: ArtifactStore, case: tuple[str, tuple[str, ...], int]
) -> None:
    name, files, attempt = case

    assert _record(ArtifactStore(store.root / name), _try("a"), _try("b", files)) == [1, attempt]


def test_a_promotion_resets_the_count_of_tries(tmp_path: Path, store: ArtifactStore) -> None:
    """A good model can be confirmed every night; a promotion that was rolled back does not count."""
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    good, withdrawn = adapter_digest(first), adapter_digest(second)
    assert _record(store, _try("a"), _try("b"), _try(good)) == [1, 2, 3]
    promote(scored(first, store, evaluated(first, store)), first, store, PRESENT, now=NOW)

    assert _record(store, _try("c"), _try("d"), _try(withdrawn)) == [1, 2, 3]
    promote(scored(second, store, evaluated(second, store)), second, store, PRESENT, now=NOW)
    assert _record(store, _try("e")) == [1]
    roll_back(store, now=NOW, reason="it writes nonsense")
    assert _record(store, _try("f")) == [5]


def test_another_try_of_the_champion_does_not_reset_the_count(tmp_path: Path, store: ArtifactStore) -> None:
    run = trained(tmp_path / "run")
    champion = adapter_digest(run)
    _record(store, _try(champion))
    promote(scored(run, store, evaluated(run, store)), run, store, PRESENT, now=NOW)

    assert _record(store, _try("a"), _try("b"), _try(champion, seed=2), _try("c")) == [1, 2, 3, 4]


def test_a_truncated_line_is_removed(store: ArtifactStore) -> None:
    _record(store, _try("a"), _try("b"))
    path = store.root / FOLDER / LEDGER
    path.write_bytes(path.read_bytes()[:-40])

    assert _record(store, _try("c"), _try("d")) == [2, 3]
    assert len(_read_lines(store)) == 3


def test_an_invalid_line_in_the_middle_is_refused(store: ArtifactStore) -> None:
    _record(store, _try("a"))
    path = store.root / FOLDER / LEDGER
    path.write_text("{}\n" + path.read_text())

    with pytest.raises(RefusedError, match=r"ledger\.jsonl:1: invalid entry .* Restore the file from a backup"):
        _record(store, _try("b"))


def test_machines_that_share_a_bucket_count_tries_together(tmp_path: Path, store_url: str) -> None:
    tries = [_try(name) for name in "abc"]
    stores = [ArtifactStore(tmp_path / name, Remote(store_url)) for name in "abc"]

    assert [_record(store, tried) for store, tried in zip(stores, tries, strict=True)] == [[1], [2], [3]]
    assert _record(stores[2], tries[0]) == [1]
    assert len({find_try(store, None)[1] for store in stores}) == 1
    assert record_try(stores[1], _try("d"), now=NOW).store_id == find_try(stores[0], tries[0].sha256)[1]


_SIGNING = Signing.of("5b" * 32, None)
_CHECKING = Signing.of(None, _SIGNING.public_key if _SIGNING else None)
_FOREIGN = Signing.of("6c" * 32, None)
_OTHER_SUITE = ("other.vox",)


def _open(store: ArtifactStore, signing: Signing | None) -> ArtifactStore:
    return ArtifactStore(store.root, signing=signing)


def _change_attempt(line: str) -> str:
    return json.dumps({**json.loads(line), "attempt": 1})


def _copy_files(line: str, other: str) -> str:
    return json.dumps({**json.loads(line), "files": json.loads(other)["files"]})


def _sign_with_another_key(lines: list[str], store: ArtifactStore) -> list[str]:
    foreign = _open(ArtifactStore(store.root / "foreign"), _FOREIGN)
    _record(foreign, _try("a"), _try("b"), _try("c", _OTHER_SUITE), _try("d"))
    return [*_read_lines(foreign)[:3], *lines[3:]]


@pytest.mark.threat("M24")
@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda lines, _: lines[1:], "ledger.jsonl:1: its signature does not match the key"),
        (lambda lines, _: [lines[0], *lines[2:]], "ledger.jsonl:2: its signature does not match the key"),
        (lambda lines, _: [*lines[:3], lines[4]], "ledger.jsonl:3: the end: its signature does not match the key"),
        (lambda lines, _: lines[:3], "ledger.jsonl:3: the end: it is not signed"),
        (lambda lines, _: lines[4:], "ledger.jsonl:1: the end: its signature does not match the key"),
        (lambda _read_lines, _: ["cut off"], "ledger.jsonl:1: the end: its signature|ledger.jsonl:1: invalid entry"),
        (lambda lines, _: [*lines[:3], _change_attempt(lines[3]), lines[4]], "ledger.jsonl:4: its signature"),
        (lambda lines, _: [*lines[:2], lines[0], *lines[3:]], "ledger.jsonl:3: its signature does not match the key"),
        (lambda lines, _: [*lines[:3], _copy_files(lines[3], lines[2]), lines[4]], "ledger.jsonl:4: its sign"),
        (lambda lines, _: [lines[0], lines[2], lines[1], *lines[3:]], "ledger.jsonl:2: its signature does not match"),
        (_sign_with_another_key, "ledger.jsonl:1: its signature does not match the key"),
    ],
    ids=[
        *("first removed", "middle removed", "last removed", "last and seal removed", "all but the seal removed"),
        *("nonsense", "changed", "doubled", "copied from another eval suite", "in another order", "another key"),
    ],
)
def test_a_forged_ledger_is_refused(
    store: ArtifactStore, forge: Callable[[list[str], ArtifactStore], list[str]], message: str
) -> None:
    """A removed, changed, cut or copied line is refused, with its number and what to do."""
    signed = _open(store, _SIGNING)
    assert _record(signed, _try("a"), _try("b"), _try("c", _OTHER_SUITE), _try("d")) == [1, 2, 1, 3]
    lines = _read_lines(store)
    assert len(lines) == 5, "with the seal"
    (store.root / FOLDER / LEDGER).write_text("".join(f"{line}\n" for line in forge(lines, store)))

    for tried in (_try("e"), _try("d")):
        with pytest.raises(RefusedError, match=rf"({message}).*Restore (it|the file) from a backup"):
            record_try(signed, tried, now=NOW)


@pytest.mark.threat("M24")
def test_a_missing_ledger_is_noticed(tmp_path: Path, store: ArtifactStore, store_url: str) -> None:
    """By an evaluation, here or in the bucket; without any evaluation the count starts again."""
    shared = ArtifactStore(tmp_path / "shared", Remote(store_url), _SIGNING)
    for signed in (_open(store, _SIGNING), shared):
        assert _record(signed, _try("a")) == [1]
        run = trained(tmp_path / f"run-{signed.root.name}")
        evaluation = evaluated(run, signed)
        _remove(signed)
        with pytest.raises(RefusedError, match=r"ledger\.jsonl: it is missing, but the store has.*--sign-history"):
            _record(signed, _try("b"))
        assert sign_ledger(signed) == ()
        with pytest.raises(
            RefusedError, match=r"it lacks evaluations that were made here .*remove the folders of these"
        ):
            _record(signed, _try("b"))
        shutil.rmtree(evaluation.path)
        assert _record(signed, _try("b")) == [1]


def _remove(store: ArtifactStore) -> None:
    store.documents.amend(FOLDER, LEDGER, lambda _content: b"")


def test_a_ledger_from_before_the_key_is_signed_unchanged(store: ArtifactStore) -> None:
    signed, checked = _open(store, _SIGNING), _open(store, _CHECKING)
    assert _record(store, _try("a"), _try("b")) == [1, 2]
    with pytest.raises(RefusedError, match=r"ledger\.jsonl:1: it is not signed.*--sign-history"):
        _record(signed, _try("c"))
    for unable in (store, checked):
        with pytest.raises(ConfigurationError, match=r"MENS_SIGNING_KEY"):
            sign_ledger(unable)

    assert [entry.attempt for entry in sign_ledger(signed)] == [1, 2]
    assert _record(signed, _try("c"), _try("a")) == [3, 1]
    assert _record(checked, _try("c")) == [3]
    with pytest.raises(ConfigurationError, match="Set MENS_SIGNING_KEY where"):
        _record(checked, _try("d"))
    assert _record(store, _try("d")) == [4]
    assert len(_read_lines(store)) == 4, "without a key there is no seal"
