"""Counts of pieces at a cursor, and training on the pieces that a person accepted."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import STAGE as SPLIT
from mens_pipeline.corpus.curate.heldout_split import SplitParams
from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.corpus.curate.mixed_train_set import STAGE as MIX
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN, MixParams
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import STAGE as VALIDATION
from mens_pipeline.corpus.curate.validated_pairs import ValidationParams
from mens_pipeline.corpus.extract.extracted_corpus import TELEMETRY, build_extracted_corpus
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, PRESETS
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.prepare import prepare_run
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline_tests.corpus.telemetry_databases import query_of
from mens_pipeline_tests.serving.running import Running, running
from mens_pipeline_tests.training.runs import train_here

_PREFIX = "fn one() to int {\n    // by ada@firm.de\n    return 1\n}\n\n// "
_LIMITS = ServerLimits(2, 20_000, 60.0, 400)


@dataclass(frozen=True, slots=True)
class _Recording:
    """A server, and the file that accepted pieces go to."""

    server: Running
    table: Path

    def post(self, path: str, **fields: Any) -> Any:
        return self.server.post(path, **fields)

    def piece(self, path: str = "/infill", **fields: Any) -> Any:
        """Return the first reply whose piece has only whole characters."""
        for seed in range(40):
            body = {"input_prefix": _PREFIX, "input_suffix": "\n", "n_predict": 8, "temperature": 1.2, "seed": seed}
            reply = self.post(path, **(fields or body) | {"seed": seed}).json()
            text = reply["content"] if path == "/infill" else reply["choices"][0]["text"]
            if len(text) > 1 and "\ufffd" not in text:
                return reply
        raise AssertionError("no piece")


@pytest.fixture
def recording(infill_run: Path, tmp_path: Path) -> Iterator[_Recording]:
    """A server that records accepted pieces."""
    table = tmp_path / "accepted.db"
    with running(
        infill_run, _LIMITS, syntax=Syntax.CONSTRAINED, show_all=True, accepted=AcceptedPieces(table)
    ) as server:
        yield _Recording(server, table)


def _build_train_set(folder: Path, table: Path) -> Path:
    (folder / "workspace").mkdir()
    (folder / "workspace" / "a.vox").write_text("fn add(a: int, b: int) to int {\n    return a + b\n}\n")
    store, config = ArtifactStore(folder / "store"), load_pipeline_config(PIPELINE_CONFIG)
    corpus, _ = build_extracted_corpus(folder / "workspace", store, telemetry=query_of(table))
    others = {TELEMETRY: corpus.path / TELEMETRY}
    pairs, _ = VALIDATION.build(store, ValidationParams(corpus=corpus, others=others, policy=config.validate_))
    policy = config.split.model_copy(update={"num_family_tasks": 0})
    split, _ = SPLIT.build(store, SplitParams(pairs=pairs, repeats=config.validate_, policy=policy))
    train, _ = MIX.build(store, MixParams(split=split, config=load_mix_config(MIX_CONFIG)))
    return train.path / TRAIN


@pytest.mark.seed_row(60)
@pytest.mark.slow
def test_the_next_training_shows_accepted_pieces(recording: _Recording, tmp_path: Path, tiny_base: Path) -> None:
    reply = recording.piece()
    report = recording.post("/v1/feedback", id=reply["id"], accepted=reply["content"])
    assert report.json()["recorded"]
    flags = {"model_name_or_path": str(tiny_base)}
    run = prepare_run(
        resolve_recipe(load_named(PRESETS), {}, preset="cpu_demo", domain=None, environment={}, flags=flags),
        _build_train_set(tmp_path, recording.table),
        tmp_path / "run",
        resolve_device(DeviceChoice.CPU),
        cache=tmp_path / "cache",
        min_rows=1,
    )
    shown = train_here(run)["kinds"]["accepted"]

    assert (shown["rows"], shown["rows_too_long"]) == (1, 0)
    assert shown["rows_shown"] >= 1


def test_the_next_train_set_contains_accepted_pieces(recording: _Recording, tmp_path: Path) -> None:
    reply = recording.piece()
    word = reply["content"][:2]
    report = recording.post("/v1/feedback", id=reply["id"], accepted=word)

    assert report.json() == {"id": reply["id"], "characters_kept": 2, "recorded": True}
    (row,) = [row for row in read_pairs(_build_train_set(tmp_path, recording.table)) if row.response == word]
    assert row.infill is not None
    assert row.infill.suffix == "\n"
    assert row.prompt == _PREFIX.replace("ada@firm.de", "REDACTED_AUTHOR")
    assert b"firm.de" not in recording.table.read_bytes()


def test_pieces_are_counted_by_outcome(recording: _Recording) -> None:
    assert recording.server.figures()["mens_pieces_shown_total"] == 0
    asked = [
        recording.post(
            "/infill", input_prefix="let x = ", input_suffix="\n", n_predict=8, temperature=1.2, seed=seed
        ).json()
        for seed in range(8)
    ]
    stream = recording.server.events("/infill", input_prefix="// ", input_suffix="\n", n_predict=8, stream=True)
    recording.post("/v1/completions", model="mens", prompt="let x = ", max_tokens=4)
    recording.post("/v1/chat/completions", model="mens", messages=[{"role": "user", "content": "x"}], max_tokens=4)
    shown = sum(bool(reply["content"]) for reply in asked) + any(event["content"] for event in stream)
    after = recording.server.figures()

    assert 0 < shown < 9
    assert after["mens_pieces_shown_total"] == shown
    assert sum(value for name, value in after.items() if name.startswith("mens_pieces_withheld_total ")) == 9 - shown
    assert after["mens_pieces_withheld_total does_not_parse"] > 0
    assert after["mens_pieces_accepted_total"] == after["mens_characters_kept_total"] == 0

    accepted = next(reply for reply in asked if reply["content"])
    report = recording.post("/v1/feedback", id=accepted["id"], accepted=accepted["content"] + " and more")
    assert report.json() == {"id": accepted["id"], "characters_kept": len(accepted["content"]), "recorded": False}
    figures = recording.server.figures()
    assert figures["mens_pieces_accepted_total"] == 1
    assert figures["mens_characters_kept_total"] == len(accepted["content"])


def test_a_report_counts_once_and_must_match_its_piece(recording: _Recording) -> None:
    fields = {"model": "mens", "prompt": _PREFIX, "suffix": "\n", "max_tokens": 8, "temperature": 1.2}
    reply = recording.piece("/v1/completions", **fields)
    text = reply["choices"][0]["text"]
    wrong = recording.post("/v1/feedback", id=reply["id"], accepted="\x00" + text)
    first, second = (recording.post("/v1/feedback", id=reply["id"], accepted=text) for _ in range(2))
    unknown = recording.post("/v1/feedback", id="cmpl-0", accepted="x")
    empty = recording.post("/v1/feedback", id=reply["id"], accepted="")

    assert [each.status_code for each in (wrong, first, second, unknown, empty)] == [400, 200, 404, 404, 400]
    assert first.json()["characters_kept"] == len(text)
    assert wrong.json()["error"]["message"].startswith("accepted: the completion does not begin with this text.")
    assert second.json()["error"]["message"] == unknown.json()["error"]["message"]


def test_a_missing_or_broken_table_keeps_no_pieces(infill_run: Path, tmp_path: Path) -> None:
    with running(infill_run, _LIMITS, syntax=Syntax.CONSTRAINED, show_all=True) as server:
        plain = _Recording(server, tmp_path)
        reply = plain.piece()
        assert plain.post("/v1/feedback", id=reply["id"], accepted=reply["content"]).json()["recorded"] is False
        assert server.figures()["mens_pieces_accepted_total"] == 1
    table = tmp_path / "broken.db"
    with running(
        infill_run, _LIMITS, syntax=Syntax.CONSTRAINED, show_all=True, accepted=AcceptedPieces(table)
    ) as server:
        table.write_bytes(b"x" * 5_000)
        broken = _Recording(server, table)
        reply = broken.piece()
        report = broken.post("/v1/feedback", id=reply["id"], accepted=reply["content"])

    assert (report.status_code, report.json()["recorded"]) == (200, False)
    assert any(line.startswith("accepted pieces cannot be written: ") for line in server.lines)
