"""The checks of the corpus stages: each of them can fail."""

import json
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import ASIDE, HELDOUT, SplitReport
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import QUARANTINE, RowCounts
from mens_pipeline.corpus.infill.rows import ROWS
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.orchestration.defs.train_set import (
    _account_for_pairs,
    _account_for_records,
    as_many_as_asked,
    enough_pairs,
    mixed_rows_accounted_for,
    no_overlap,
    pairs_accounted_for,
    rows_accounted_for,
    shares_as_asked,
)
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl, write_lines
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.corpus.rows import mix_report, split_report
from mens_pipeline_tests.every import every
from mens_pipeline_tests.orchestration.stores import artifact_in, judge, store_with

_ANSWER = (
    "fn total(prices: List[int]) to int {\n    let mut sum = 0\n    for p in prices { sum += p }\n    return sum\n}\n"
)


def _pair(prompt: str, response: str, path: str) -> TrainingPair:
    source = Source(path=path, blob="0", span=(0, 1), lines=(1, 1), kind=SourceKind.VOX_FILE)
    return TrainingPair(prompt=prompt, response=response, source=source)


def _describe_pairs(**counts: Any) -> dict[str, Any]:
    behaviour = {"functions": 0, "observed": 0, "without": {}}
    return {"num_pairs": {}, "validation": {}, "behaviour": behaviour, "lanes": {}, "categories": {}, **counts}


@every("case", [(0, True), (1, False)])
def test_a_synthetic_corpus_with_fewer_rows_is_refused(tmp_path: Path, case: tuple[int, bool]) -> None:
    asked = load_pipeline_config(PIPELINE_CONFIG).synthesize.limit
    made = store_with(tmp_path / str(case[0]), Kind.SYNTHETIC_CORPUS, {"num_pairs": asked - case[0]})

    assert judge(as_many_as_asked, *made).passed is case[1]


def test_a_lost_row_is_refused(tmp_path: Path) -> None:
    counts = {"seen": 3, "kept": 1, "rejected": {"schema": 1}, "warned": {"semantic_error": 1}}
    validation = {"records.jsonl": counts}
    made = store_with(tmp_path, Kind.VALIDATED_PAIRS, _describe_pairs(validation=validation))
    result = judge(rows_accounted_for, *made)

    assert not result.passed
    assert result.metadata["unaccounted/records.jsonl"].value == 1
    assert result.metadata["semantic_error/records.jsonl"].value == 1


@pytest.mark.parametrize(("prompt", "passed"), [("Say hello", True), ("Sum prices", False)])
def test_a_leak_into_training_is_refused(tmp_path: Path, prompt: str, *, passed: bool) -> None:
    def write(folder: Path) -> None:
        write_jsonl(folder / "pairs.jsonl", [_pair(prompt, "fn hello() { }\n", "a.vox")])
        write_jsonl(folder / HELDOUT, [_pair("Sum prices", _ANSWER, "held.vox")])

    made = store_with(tmp_path, Kind.HELDOUT_SPLIT, split_report(train={"pairs.jsonl": 1}), write)
    result = judge(no_overlap, *made)

    assert result.passed is passed
    assert result.metadata["near_copies"].value == (0 if passed else 1)


@every("case", [(1, True), (0, False)])
def test_a_pair_that_the_split_lost_is_refused(tmp_path: Path, case: tuple[int, bool]) -> None:
    root = tmp_path / str(case[0])
    pairs = artifact_in(root, Kind.VALIDATED_PAIRS, _describe_pairs(num_pairs={"pairs.jsonl": 5}))
    counts = split_report(train={"pairs.jsonl": 3}, heldout=1, aside={"heldout_too_small": case[0]})
    split, store = store_with(root, Kind.HELDOUT_SPLIT, counts)

    assert judge(pairs_accounted_for, replace(split, parents=(pairs.ref(),)), store).passed is case[1]


@every("case", [(50, True), (49, False)])
def test_too_few_pairs_are_refused(tmp_path: Path, case: tuple[int, bool]) -> None:
    mixed = store_with(tmp_path / str(case[0]), Kind.MIXED_TRAIN_SET, mix_report({"distinct_lines": case[0]}))

    assert judge(enough_pairs, *mixed).passed is case[1]


def test_an_account_names_no_file_of_a_row_without_a_record(store: ArtifactStore) -> None:
    rows = ('{"reason":"too_large","record":null}', '{"reason":"schema","record":{"source":{"path":"a.vox"}}}', "{}")

    def write(folder: Path) -> dict[str, Any]:
        (folder / QUARANTINE).write_text("\n".join(rows))
        return {}

    pairs, _ = store.build(Kind.VALIDATED_PAIRS, {}, write)
    counts = RowCounts(seen=3, kept=1, rejected={}, warned={})
    warned = counts.model_copy(update={"places": [("semantic_error", "b.vox unknown-name")]})
    account = "3 records: 1 valid, 1 too_large, 1 schema (a.vox)"

    assert _account_for_records(pairs, counts) == account
    assert _account_for_records(pairs, warned) == f"{account}; kept with 1 semantic_error (b.vox unknown-name)"


def test_an_account_names_the_held_out_files(tmp_path: Path) -> None:
    held = [_pair(f"p{n}", _ANSWER, f"{name}.vox") for n, name in enumerate("abbcd")]
    aside = [{"reason": reason, "pair": {"source": _pair("p", _ANSWER, "e.vox").source}} for reason in SplitReason]

    def write(folder: Path) -> None:
        write_jsonl(folder / HELDOUT, held)
        write_lines(folder / ASIDE, (json.dumps(row, default=lambda one: one.model_dump(mode="json")) for row in aside))

    report = split_report(train={"pairs.jsonl": 4}, heldout=5)
    account = _account_for_pairs(
        artifact_in(tmp_path, Kind.HELDOUT_SPLIT, report, write), SplitReport.model_validate(report), 20
    )

    assert account.startswith("20 pairs: 4 train, 5 held out (a.vox, b.vox, c.vox and 1 more), ")
    assert "1 heldout_too_small (e.vox)" in account


def _build_mix(**changes: Any) -> dict[str, Any]:
    source = {"path": "p", "input_lines": 3, "distinct_lines": 2, "dropped": {"lane": 1}, "emitted_lines": 2}
    shares = {"requested_share": 1.0, "share_of_output": 1.0}
    return {**mix_report({**source, **shares, **changes}), "total_emitted": 2}


@every("case", [({}, True), ({"dropped": {"lane": 0}}, False), ({"emitted_lines": 3}, False)], ids=itemgetter(0))
def test_a_mix_that_does_not_add_up_is_refused(tmp_path: Path, case: tuple[dict[str, Any], bool]) -> None:
    root, report = tmp_path / str([*case[0]]), _build_mix(**case[0])
    made = store_with(root, Kind.MIXED_TRAIN_SET, report, lambda folder: (folder / TRAIN).write_text("{}\n{}\n"))

    assert judge(mixed_rows_accounted_for, *made).passed is case[1]


@every("case", [(0.96, True), (0.94, False)])
def test_shares_far_from_the_requested_ones_are_a_warning(tmp_path: Path, case: tuple[float, bool]) -> None:
    achieved, passed = case
    made = store_with(tmp_path / str(achieved), Kind.MIXED_TRAIN_SET, _build_mix(share_of_output=achieved))
    result = judge(shares_as_asked, *made)
    errors = [value.value for name, value in result.metadata.items() if name.startswith("error/")]

    assert (result.passed, result.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert ("advice" in result.metadata) is not passed
    assert errors == [round(1 - achieved, 4)]


@every(
    "case",
    [
        ("too small", (475, 475), 50, True),
        ("not used enough", (475, 475), 40, False),
        ("others apart", (600, 350), 50, False),
    ],
    ids=itemgetter(0),
)
def test_a_table_too_small_for_its_share_is_not_a_warning(
    tmp_path: Path, case: tuple[str, tuple[int, int], int, bool]
) -> None:
    name, others, telemetry, passed = case
    rows = [("pairs", others[0], 400), ("synthetic", others[1], 400), ("telemetry", telemetry, 25)]
    total = sum(emitted for _, emitted, _ in rows)
    source = _build_mix(requested_share=1 / 3)["sources"][0]
    sources = [
        source
        | {"path": path, "distinct_lines": distinct, "emitted_lines": emitted, "share_of_output": emitted / total}
        for path, emitted, distinct in rows
    ]
    made = store_with(tmp_path / name, Kind.MIXED_TRAIN_SET, {**_build_mix(), "sources": sources})
    result = judge(shares_as_asked, *made)

    assert result.passed is passed
    assert (result.metadata["too_small_for_their_share"].value == "telemetry") is (telemetry == 50)


def test_a_small_folder_with_all_holes_used_is_not_a_warning(tmp_path: Path) -> None:
    """All its infill rows are used, and infill rows are not repeated as pairs are."""
    source = _build_mix()["sources"][0]
    rows = [("pairs.jsonl", 22, 11, 0.35), ("synthetic.jsonl", 1796, 1796, 0.35), (ROWS, 487, 487, 0.3)]
    sources = [
        {**source, "path": path, "emitted_lines": used, "distinct_lines": given, "requested_share": share}
        | {"share_of_output": used / 2305}
        for path, used, given, share in rows
    ]
    made = store_with(tmp_path, Kind.MIXED_TRAIN_SET, {**_build_mix(), "sources": sources})
    result = judge(shares_as_asked, *made)

    assert result.passed
    assert result.metadata["too_small_for_their_share"].value == f"pairs.jsonl, {ROWS}"
