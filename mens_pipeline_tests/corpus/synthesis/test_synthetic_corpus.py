"""Synthetic pairs: the requested number, all distinct, each kind with its share, rare constructs first."""

import json
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.curate.pipeline_config import KindShares, SynthesizePolicy
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.reasons import SynthesisDrop
from mens_pipeline.corpus.schema.records import ExtractedRecord, read_pairs
from mens_pipeline.corpus.synthesis import synthetic_corpus as module
from mens_pipeline.corpus.synthesis.families.templates import Family, Sample
from mens_pipeline.corpus.synthesis.synthetic_corpus import (
    KINDS,
    PAIRS,
    REPORT,
    STAGE,
    SynthesisAccount,
    SynthesisParams,
    generate,
    write_synthetic,
)
from mens_pipeline.corpus.synthesis.tasks import draw
from mens_pipeline.corpus.synthesis.tasks.templates import Atom
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, mode_of
from mens_pipeline.language.interpreter import Features, run_tests
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.language.examples import parse

_SHARES = {"task": 0.3, "template": 0.6, "combination": 0.1}
_WITHOUT_TASKS = {"task": 0.0, "template": 0.5, "combination": 0.5}
_TEMPLATES = {"task": 0.0, "template": 1.0, "combination": 0.0}


def _policy(limit: int, seed: int, shares: dict[str, float] = _SHARES) -> SynthesizePolicy:
    return SynthesizePolicy(limit=limit, seed=seed, shares=KindShares(**shares))


@pytest.fixture(scope="module")
def records() -> list[ExtractedRecord]:
    outcomes = extract_workspace(PROJECT_ROOT / "data" / "golden")
    return [ExtractedRecord.model_validate_json(line) for outcome in outcomes for line in outcome.lines]


@pytest.mark.seed_row(1)
def test_the_requested_number_of_distinct_pairs_is_made() -> None:
    pairs = list(generate(600, 0, _SHARES, {}))

    assert len(pairs) == len({(pair.prompt, pair.response) for pair in pairs}) == 600
    assert {pair.task_family for pair in pairs} == set(KINDS)
    for pair in pairs:
        assert pair.source is not None
        assert pair.template is not None
        parsed = parse(pair.response, mode_of(pair.source.path))
        assert parsed.declarations
        assert "```" not in pair.response


def test_programs_with_tests_are_kept_when_they_pass() -> None:
    account = SynthesisAccount()
    pairs = list(generate(800, 1, _TEMPLATES, {}, dropped=account.drop))
    features = Features(check_contracts=True, database=True)
    reports = [
        run_tests(pair.response, features=features, mode=mode_of(pair.source.path)) for pair in pairs if pair.source
    ]

    assert len(reports) == len(pairs) == 800
    assert sum(report.passed for report in reports) > 50
    assert {report.error_class for report in reports} == {None}
    assert account.dropped_for(SynthesisDrop.FAILING_TESTS)


def test_templates_with_errors_in_names_or_types_are_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def make(random: Random) -> Sample:
        name, gives = random.choice(("f", "g", "h")), random.choice(("int", "str"))
        return Sample("function/made", "function", f"Write {name}.", f"fn {name}(n: int) to {gives} {{ return n }}\n")

    monkeypatch.setattr(module, "load_families", lambda: (Family("function/made", "function", make, "made:1"),))
    report = write_synthetic(tmp_path / "made.jsonl", [], _policy(limit=3, seed=0, shares=_TEMPLATES))
    made = list(read_pairs(tmp_path / "made.jsonl"))

    assert set(report["semantic_errors"]) == {"function/made"}
    assert len([pair for pair in made if "to int" in pair.response]) == report["num_pairs"] == 3


def test_tasks_with_errors_in_names_or_types_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    atoms = tuple(
        Atom(
            name=name, level=0, holes={"number": "2..99"}, fn=[name], takes="n: int", gives=gives,
            says=["multiplies `n` by $number", "returns $number times `n`"], code=["return n * $number"],
        )
        for name, gives in (("scaled", "int"), ("told", "str"))
    )  # fmt: skip
    monkeypatch.setattr(draw, "load_tasks", lambda: (atoms, {}))
    monkeypatch.setattr(draw, "_SAME_SKELETON", 100)  # two templates give two structures
    account = SynthesisAccount()
    pairs = list(generate(4, 0, {**dict.fromkeys(KINDS, 0.0), "task": 1.0}, {}, dropped=account.drop))

    assert [pair.template for pair in pairs] == ["task/scaled"] * 4
    assert set(account.dropped_for(SynthesisDrop.SEMANTIC_ERROR)) == {"task/told"}


@pytest.mark.seed_row(1)
def test_the_same_seed_gives_the_same_bytes(records: list[ExtractedRecord], tmp_path: Path) -> None:
    for name, limit, seed in (("a", 100, 7), ("b", 100, 7), ("c", 100, 8), ("d", 130, 7)):
        write_synthetic(tmp_path / name, records, _policy(limit=limit, seed=seed))
    a, b, c, d = ((tmp_path / name).read_bytes() for name in "abcd")

    assert a == b
    assert a != c
    assert d.startswith(a)


def test_without_a_corpus_every_construct_is_made() -> None:
    shown = {pair.category for pair in generate(200, 0, _SHARES, {})}

    assert shown == set(CONSTRUCTS)


def test_constructs_with_least_coverage_come_first() -> None:
    plenty = {name: 1000 for name in CONSTRUCTS if name not in {"push", "actor"}}
    templates = [pair for pair in generate(60, 0, _SHARES, plenty) if pair.task_family == "template"]

    assert {pair.category for pair in templates} == {"push", "actor"}


def test_the_account_adds_up(tmp_path: Path) -> None:
    output = tmp_path / "s.jsonl"
    account = write_synthetic(output, [], _policy(limit=100, seed=3))
    rows = [json.loads(line) for line in output.read_text().splitlines()]

    assert account["num_pairs"] == len(rows) == 100
    for part in ("kinds", "templates", "constructs"):
        assert sum(entry["count"] for entry in account[part].values()) == 100
        assert sum(entry["share"] for entry in account[part].values()) == pytest.approx(1)
    assert list(account["constructs"]) == list(CONSTRUCTS)
    assert write_synthetic(tmp_path / "none.jsonl", [], _policy(limit=0, seed=0))["kinds"] == {}


def test_more_pairs_than_possible_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def make(random: Random) -> Sample:
        name = random.choice(("f", "g"))
        return Sample("function/two", "function", f"Write {name}.", f"fn {name}() {{ }}\n")

    monkeypatch.setattr(module, "load_families", lambda: (Family("function/two", "function", make, "two:1"),))

    with pytest.raises(RefusedError, match=r"only 2 different pairs could be made, 3 were wanted\. Ask for fewer"):
        write_synthetic(tmp_path / "s.jsonl", [], _policy(limit=3, seed=0, shares=_TEMPLATES))
    assert not (tmp_path / "s.jsonl").exists()


def test_pairs_are_made_once_for_a_corpus_and_a_policy(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.vox").write_text("fn a(n: int) to int { return n * 7 }\n")
    store = ArtifactStore(tmp_path / "store")
    corpus, _ = build_extracted_corpus(tmp_path / "workspace", store)
    policies = [_policy(4, seed, _WITHOUT_TASKS) for seed in (0, 0, 1)]
    (first, _), (same, is_reused), (other, is_other_reused) = (
        STAGE.build(store, SynthesisParams(corpus=corpus, policy=policy)) for policy in policies
    )
    report = json.loads((first.path / REPORT).read_text())

    assert (same, is_reused, is_other_reused) == (first, True, False)
    assert len(list(read_pairs(first.path / PAIRS))) == 4
    assert list(read_pairs(first.path / PAIRS)) != list(read_pairs(other.path / PAIRS))
    assert {key: value for key, value in report.items() if key != "templates"}.items() <= first.manifest.items()


def test_progress_is_reported_for_every_pair(tmp_path: Path) -> None:
    reported: list[int] = []
    write_synthetic(tmp_path / "pairs.jsonl", [], _policy(4, 0, _WITHOUT_TASKS), progress=reported.append)

    assert reported == [1, 2, 3, 4]
