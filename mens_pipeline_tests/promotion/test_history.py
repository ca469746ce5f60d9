"""Damage to the history of champions: tolerated, or refused because withdrawn adapters would be unknown."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.promotion.history import CHAMPION, HISTORY, champion_key, lock_champion, read_history, record
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, champion_in, promote, promoted, trained, verdict_of


@pytest.fixture
def rolled_back(tmp_path: Path, store: ArtifactStore) -> Path:
    """The folder of two champions, the second of which was withdrawn."""
    for name in ("first", "second"):
        promoted(trained(tmp_path / name, name), store)
    roll_back(store, now=NOW, reason="it writes nonsense")
    return store.root / Kind.PROMOTED_ADAPTER


def _rewrite(change: Callable[[str], str]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / HISTORY).write_text(change((folder / HISTORY).read_text()))

    return damage


@pytest.mark.parametrize(
    "cut",
    [_rewrite(lambda text: f'{text}{{"timestamp_unix": 18000000'), _rewrite(lambda text: text.removesuffix("\n"))],
)
def test_a_truncated_last_line_is_tolerated(
    rolled_back: Path, tmp_path: Path, store: ArtifactStore, cut: Callable[[Path], None]
) -> None:
    cut(rolled_back)
    third = promoted(trained(tmp_path / "third", "third"), store)

    assert [event.action for event in read_history(store)] == ["promote", "promote", "rollback", "promote"]
    assert champion_key(store) == third
    assert (rolled_back / HISTORY).read_text().count("\n") == 4


def _add_an_unchained_line(text: str) -> str:
    last = json.loads(text.splitlines()[-1])
    del last["after_sha256"]
    return f"{text}{json.dumps(last)}\n"


@pytest.mark.threat("M21")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_rewrite(lambda text: text[:-30]), "the line that promoted [0-9a-f]{12} is missing"),
        (
            _rewrite(lambda text: "".join(text.splitlines(keepends=True)[:-1])),
            "the line that promoted [0-9a-f]{12} is missing",
        ),
        (
            _rewrite(lambda text: "".join(text.splitlines(keepends=True)[1:])),
            r"history\.jsonl:1: a line before this one was changed or is missing",
        ),
        (lambda folder: (folder / HISTORY).unlink(), "no entry for the champion [0-9a-f]{12}"),
        (
            _rewrite(lambda text: text.replace("the gate passed", "the gate slept", 1)),
            r"history\.jsonl:2: a line before this one was changed or is missing",
        ),
        (
            _rewrite(lambda text: text.replace('"previous"', '"former"', 1)),
            r"history\.jsonl:1: invalid event \(previous: .*\)\. Restore it from a backup: only this file records",
        ),
        (
            _rewrite(_add_an_unchained_line),
            r"history\.jsonl:4: a line before this one was changed or is missing",
        ),
        (
            lambda folder: (folder / CHAMPION).unlink(),
            r"champion: no champion is named, but history\.jsonl records 3 changes",
        ),
    ],
)
def test_a_damaged_history_stops_every_change(
    rolled_back: Path, tmp_path: Path, store: ArtifactStore, damage: Callable[[Path], None], message: str
) -> None:
    """A withdrawn adapter is not promoted again, and nothing replaces an unknown champion."""
    gate = verdict_of(tmp_path / "second", store)
    damage(rolled_back)
    left = {path.name for path in rolled_back.iterdir()}

    with pytest.raises(RefusedError, match=message) as refused:
        promote(gate, tmp_path / "second", store, PRESENT, now=NOW)
    with pytest.raises(RefusedError, match=message):
        roll_back(store, now=NOW, reason="again")
    assert "Delete the folder" not in str(refused.value)
    assert {path.name for path in rolled_back.iterdir()} == left


@pytest.mark.parametrize(
    "newer", [{"format_version": 2, "action": "retire"}, {"by": "a maintainer"}, {"action": "retire"}]
)
def test_a_history_of_a_newer_version_asks_for_an_upgrade(
    rolled_back: Path, store: ArtifactStore, newer: dict[str, Any]
) -> None:
    """It is valid, so nobody should delete it, even if its end was truncated."""
    path = rolled_back / HISTORY
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], json.dumps(json.loads(lines[2]) | newer)]))

    with pytest.raises(RefusedError, match=r"history\.jsonl:3: written by a newer version .*Upgrade it\.$"):
        champion_key(store)


def test_a_pointer_repaired_by_hand_is_accepted(rolled_back: Path, store: ArtifactStore) -> None:
    (rolled_back / CHAMPION).unlink()
    with pytest.raises(RefusedError) as refused:
        champion_key(store)
    (named,) = re.findall("the last one was ([0-9a-f]{64})", str(refused.value))
    (rolled_back / CHAMPION).write_text(f"{named}\n")

    assert champion_key(store) == named


@pytest.mark.slow
def test_machines_that_share_a_bucket_share_the_champion(tmp_path: Path, store_url: str) -> None:
    """A promotion on one takes effect on the other; a change of an outdated state is refused."""
    first, second = (ArtifactStore(tmp_path / name, Remote(store_url)) for name in "ab")
    key = promoted(trained(tmp_path / "first", "first"), first)
    champion = champion_in(second)
    assert champion.key == key
    assert champion.path.is_relative_to(second.root)
    assert champion.find_changed() == ()

    with lock_champion(second) as seen:
        promoted(trained(tmp_path / "second", "second"), first)
        event = read_history(second)[0]
        with pytest.raises(RefusedError, match=r"/history\.jsonl: changed meanwhile, perhaps on another machine\. Run"):
            record(second, event, champion, seen)
    assert len(read_history(second)) == 2
    back = roll_back(second, now=NOW, reason="it writes nonsense")

    assert back.champion.key == key == champion_key(first)
    assert [event.action for event in read_history(first)] == ["promote", "promote", "rollback"]
    assert not (first.root / Kind.PROMOTED_ADAPTER / HISTORY).exists()


@pytest.mark.slow
def test_a_change_waits_for_the_current_one(tmp_path: Path, store: ArtifactStore) -> None:
    """Two at once on one machine would each replace the champion of the other."""
    run = trained(tmp_path / "run", "1")
    gate = verdict_of(run, store)
    begun = Event()

    def change() -> None:
        begun.set()
        promote(gate, run, store, PRESENT, now=NOW + 1)

    with ThreadPoolExecutor(1) as pool:
        with lock_champion(store):
            waiting = pool.submit(change)
            begun.wait()
            with pytest.raises(TimeoutError):
                waiting.result(timeout=2)
            assert champion_key(store) is None
        waiting.result(timeout=60)

    assert champion_key(store) is not None
