"""The split as an artifact."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import (
    ASIDE,
    FAMILIES,
    HELDOUT,
    OVERLAP_STAGE,
    STAGE,
    OverlapParams,
    SplitParams,
    family_pairs,
    is_held_out,
)
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy, ValidatePolicy, load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import PAIRS, ValidationParams
from mens_pipeline.corpus.curate.validated_pairs import STAGE as VALIDATION
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import NEW_CONSTANTS, UNKNOWN_TASK, TrainingPair, read_pairs
from mens_pipeline.corpus.synthesis.tasks.draw import is_heldout_family
from mens_pipeline.language.interpreter import run_with_tests
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.corpus.rows import pair_at, split_report

_REPEATS = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=9, max_per_template=9)
_POLICY = SplitPolicy(heldout_share=0.5, seed=0, max_overlap=0.5, min_nodes=5)
_PROGRAM = "fn f{0}(a{0}: int, b{0}: str) to int {{ return a{0} {1} len(b{0}) + {0} }}\n"


def test_validated_pairs_are_split_once_and_counted(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    operators = ("+", "-", "*", "/", "<", ">", "is", "isnt")
    for number, operator in enumerate(operators):
        (root / f"{number}.vox").write_text(_PROGRAM.format(number, operator))
    held = next(number for number in range(8) if is_held_out(f"{number}.vox", _POLICY))
    leak = pair_at(None, "q", _PROGRAM.format(99, operators[held]))
    write_jsonl(tmp_path / "synthetic.jsonl", [leak, pair_at(None, "r", "let xyz = [1, 2, 3, 4, 5, 6, 7]\n")])
    store = ArtifactStore(tmp_path / "store")
    corpus, _ = build_extracted_corpus(root, store)
    others = {"synthetic.jsonl": tmp_path / "synthetic.jsonl"}
    pairs, _ = VALIDATION.build(store, ValidationParams(corpus=corpus, others=others, policy=_REPEATS))
    params = SplitParams(pairs=pairs, repeats=_REPEATS, policy=_POLICY)
    reseeded = params.model_copy(update={"policy": _POLICY.model_copy(update={"seed": 1})})
    split, was_there = STAGE.build(store, params)
    again, is_there = STAGE.build(store, params)
    other, was_the_same = STAGE.build(store, reseeded)

    scored = {str(pair.source and pair.source.path) for pair in read_pairs(split.path / HELDOUT)}
    trained = {str(pair.source and pair.source.path) for pair in read_pairs(split.path / PAIRS)}
    aside = [json.loads(line) for line in (split.path / ASIDE).read_text().splitlines()]
    assert scored == {path.name for path in root.iterdir() if is_held_out(path.name, _POLICY)}
    assert scored | trained == {path.name for path in root.iterdir()}
    assert [(row["reason"], row["detail"]) for row in aside] == [(SplitReason.STRUCTURE, f"{held}.vox")]
    assert split.manifest["train"] == {PAIRS: len(trained), "synthetic.jsonl": 1}
    assert split.manifest["heldout"] + len(trained) == pairs.manifest["num_pairs"][PAIRS] == 8
    assert (was_there, is_there, was_the_same) == (False, True, False)
    assert list(read_pairs(split.path / FAMILIES)) == []
    assert again == split
    assert other.key != split.key


def test_synthetic_tasks_are_held_out_in_two_groups() -> None:
    rows = list(family_pairs(_POLICY.model_copy(update={"num_family_tasks": 3})))
    reports = [run_with_tests(row.response, row.tests or "") for row in rows]

    assert [row.task_family for row in rows] == [NEW_CONSTANTS] * 3 + [UNKNOWN_TASK] * 3
    assert [is_heldout_family(str(row.template).split("/")[1]) for row in rows] == [False] * 3 + [True] * 3
    assert all(report.tests and all(case.passed for case in report.tests) for report in reports)


_ANSWER = (
    "fn total(prices: List[int]) to int {\n    let mut sum = 0\n    for p in prices { sum += p }\n    return sum\n}\n"
)
_RENAMED = "fn all_of(w: List[int]) to int {\n    let mut n = 7\n    for x in w { n += x }\n    return n\n}\n"


def _count_overlap(root: Path, train: TrainingPair, heldout: TrainingPair) -> dict[str, Any]:
    store = ArtifactStore(root)

    def write(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / "pairs.jsonl", [train])
        write_jsonl(folder / HELDOUT, [heldout])
        return split_report(train={"pairs.jsonl": 1})

    split = store.build(Kind.HELDOUT_SPLIT, {}, write)[0]
    params = OverlapParams(split=split, policy=load_pipeline_config(PIPELINE_CONFIG).split, protected=())
    counted, _ = OVERLAP_STAGE.build(store, params)
    (split.path / "pairs.jsonl").unlink()
    again, _ = OVERLAP_STAGE.build(store, params)
    assert again.key == counted.key, "counted once: nothing is read the second time"
    return counted.manifest


@pytest.mark.parametrize(
    ("train", "files", "copies"),
    [
        (pair_at("a.vox", "Say hello", "fn hello() { }\n"), 0, 0),
        (pair_at("held.vox", "Say hello", "fn hello() { }\n"), 1, 0),
        (pair_at("a.vox", "Sum prices", "fn hello() { }\n"), 0, 1),
        (pair_at("a.vox", "Repair this:\n" + _ANSWER, "fn hello() { }\n"), 0, 1),
        (pair_at("a.vox", "Add weights", _RENAMED), 0, 1),
    ],
    ids=["clean", "same file", "same request", "answer in the request", "renamed copy"],
)
def test_a_leak_into_training_is_counted(tmp_path: Path, train: TrainingPair, files: int, copies: int) -> None:
    counts = _count_overlap(tmp_path, train, pair_at("held.vox", "Sum prices", _ANSWER))

    assert (counts["pairs_of_heldout_files"], counts["near_copies"]) == (files, copies)
    assert counts["same_behaviour"] == 0


def test_a_row_that_solves_a_held_out_task_is_counted(tmp_path: Path) -> None:
    tests = "@test fn a() { assert(twice(2) is 4) }\n@test fn b() { assert(twice(5) is 10) }"
    scored = pair_at("held.vox", "Double it", "fn twice(n: int) to int { return n * 2 }\n")
    train = pair_at("a.vox", "Add it up", "fn again(value: int) to int {\n    let sum = value + value\n    sum\n}\n")

    counts = _count_overlap(tmp_path, train, scored.model_copy(update={"tests": tests}))

    assert (counts["near_copies"], counts["same_behaviour"]) == (0, 1)
