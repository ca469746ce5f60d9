"""Synthetic pairs: exactly as many as wanted, all different, each kind with its share, the scarce first."""

import json
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.curate.pipeline_config import KindShares, SynthesizePolicy
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceKind
from mens_pipeline.corpus.synthesis import generate as module
from mens_pipeline.corpus.synthesis.generate import KINDS, SynthesisDrop, bases_of, generate
from mens_pipeline.corpus.synthesis.mutations import MUTATIONS
from mens_pipeline.corpus.synthesis.repairs import BREAKAGES
from mens_pipeline.corpus.synthesis.sample import Family, Sample
from mens_pipeline.corpus.synthesis.synthetic_corpus import SynthesisAccount, write_synthetic
from mens_pipeline.corpus.synthesis.tasks import draw
from mens_pipeline.corpus.synthesis.tasks.templates import Atom
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, analyze, mode_of
from mens_pipeline.language.interpreter import Features, run_tests
from mens_pipeline.settings import PROJECT_ROOT

_SHARES = {"task": 0.25, "template": 0.375, "combination": 0.075, "mutation": 0.15, "repair": 0.15}
_TEMPLATES = {"task": 0.0, "template": 1.0, "combination": 0.0, "mutation": 0.0, "repair": 0.0}


def _policy(limit: int, seed: int, shares: dict[str, float] = _SHARES) -> SynthesizePolicy:
    return SynthesizePolicy(limit=limit, seed=seed, shares=KindShares(**shares))


@pytest.fixture(scope="module")
def records() -> list[ExtractedRecord]:
    """The records of the golden programs."""
    outcomes = extract_workspace(PROJECT_ROOT / "data" / "golden")
    return [ExtractedRecord.model_validate_json(line) for outcome in outcomes for line in outcome.lines]


@pytest.mark.seed_row(1)
def test_there_are_exactly_as_many_as_wanted_and_all_differ(records: list[ExtractedRecord]) -> None:
    """Every one is accepted, says what made it, and stands in one of the kinds."""
    pairs = list(generate(600, 0, _SHARES, {}, bases=bases_of(records)))

    assert len(pairs) == len({(pair.prompt, pair.response) for pair in pairs}) == 600
    assert {pair.task_family for pair in pairs} == set(KINDS)
    for pair in pairs:
        assert pair.source is not None
        assert pair.template is not None
        parsed = analyze(pair.response, mode_of(pair.source.path)).module
        assert parsed is not None, pair.template
        assert parsed.declarations
        assert "```" not in pair.response


def test_programs_with_tests_are_kept_when_they_pass(records: list[ExtractedRecord], tmp_path: Path) -> None:
    """Those that fail, as their author left them, are counted by what made them; others take their place."""
    wrong = "fn twice(n: int) to int { return n + 1 }\n\n@test fn it_doubles() to Unit { assert(twice(5) is 10) }\n"
    (tmp_path / "wrong.vox").write_text(wrong, encoding="utf-8")
    failing = [
        ExtractedRecord.model_validate_json(line) for outcome in extract_workspace(tmp_path) for line in outcome.lines
    ]
    account = SynthesisAccount()
    pairs = list(generate(600, 0, _SHARES, {}, bases=bases_of([*records, *failing * 40]), dropped=account.drop))
    features = Features(check_contracts=True, database=True)
    reports = [
        run_tests(pair.response, features=features, mode=mode_of(pair.source.path)) for pair in pairs if pair.source
    ]

    assert len(reports) == len(pairs) == 600
    assert sum(report.passed for report in reports) > 50
    assert {report.error_class for report in reports} == {None}
    made_of = account.dropped_for(SynthesisDrop.FAILING_TESTS)
    assert made_of
    assert set(made_of) <= {f"mutation/{name}" for name in MUTATIONS} | {f"repair/{name}" for name in BREAKAGES}


def test_programs_with_errors_in_names_or_types_are_dropped(tmp_path: Path) -> None:
    """What their author left is counted by what made them of it, and others take their place."""
    (tmp_path / "wrong.vox").write_text("fn twice(n: int) to str { return n * 2 }\n", encoding="utf-8")
    wrong = [
        ExtractedRecord.model_validate_json(line) for outcome in extract_workspace(tmp_path) for line in outcome.lines
    ]
    report = write_synthetic(tmp_path / "made.jsonl", wrong, _policy(limit=100, seed=0))
    made = list(read_pairs(tmp_path / "made.jsonl"))

    assert report["semantic_errors"]
    assert set(report["semantic_errors"]) <= {
        *(f"mutation/{n}" for n in MUTATIONS),
        *(f"repair/{n}" for n in BREAKAGES),
    }
    assert len([pair for pair in made if "n * 2" not in pair.response]) == report["num_pairs"] == 100


def test_tasks_with_errors_in_names_or_types_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take their place, and they are counted by their template."""
    atoms = tuple(
        Atom(
            name=name, level=0, holes={"number": "2..99"}, fn=[name], takes="n: int", gives=gives,
            says=["multiplies `n` by $number", "returns $number times `n`"], code=["return n * $number"],
        )
        for name, gives in (("scaled", "int"), ("told", "str"))
    )  # fmt: skip
    monkeypatch.setattr(draw, "load_tasks", lambda: (atoms, {}))
    account = SynthesisAccount()
    pairs = list(generate(4, 0, {**dict.fromkeys(KINDS, 0.0), "task": 1.0}, {}, dropped=account.drop))

    assert [pair.template for pair in pairs] == ["task/scaled"] * 4
    assert set(account.dropped_for(SynthesisDrop.SEMANTIC_ERROR)) == {"task/told"}


@pytest.mark.seed_row(1)
def test_the_same_seed_gives_the_same_bytes(records: list[ExtractedRecord], tmp_path: Path) -> None:
    """Another seed gives others, and a longer run begins with the shorter one."""
    for name, limit, seed in (("a", 100, 7), ("b", 100, 7), ("c", 100, 8), ("d", 130, 7)):
        write_synthetic(tmp_path / name, records, _policy(limit=limit, seed=seed))
    a, b, c, d = ((tmp_path / name).read_bytes() for name in "abcd")

    assert a == b
    assert a != c
    assert d.startswith(a)


def test_without_a_corpus_every_construct_is_made() -> None:
    """Two hundred rows show all thirty."""
    shown = {pair.category for pair in generate(200, 0, _SHARES, {})}

    assert shown == set(CONSTRUCTS)


def test_constructs_with_least_coverage_come_first() -> None:
    """What there is plenty of already is not made from templates of its own."""
    plenty = {name: 1000 for name in CONSTRUCTS if name not in {"push", "actor"}}
    templates = [pair for pair in generate(60, 0, _SHARES, plenty) if pair.task_family == "template"]

    assert {pair.category for pair in templates} == {"push", "actor"}


def test_what_was_changed_on_purpose_names_the_file_it_came_from(records: list[ExtractedRecord]) -> None:
    """So that changes of a held-out file never train; templates name themselves."""
    pairs = list(generate(300, 0, _SHARES, {}, bases=bases_of(records)))
    paths = {record.source.path for record in records}
    derived = [pair.source for pair in pairs if pair.source is not None and pair.source.kind is SourceKind.DERIVED]
    others = [pair.source for pair in pairs if pair.source is not None and pair.source.kind is SourceKind.SYNTHETIC]

    assert derived
    assert all(source.path in paths for source in derived)
    assert all(source.path.startswith("synthetic/") for source in others)
    assert len(derived) + len(others) == 300


def test_the_account_adds_up(tmp_path: Path) -> None:
    """By kind, by template, by construct; before and after."""
    output = tmp_path / "s.jsonl"
    account = write_synthetic(output, [], _policy(limit=100, seed=3))
    rows = [json.loads(line) for line in output.read_text().splitlines()]

    assert account["num_pairs"] == len(rows) == 100
    for part in ("kinds", "templates", "constructs"):
        assert sum(entry["count"] for entry in account[part].values()) == 100
        assert sum(entry["share"] for entry in account[part].values()) == pytest.approx(1)
    assert list(account["constructs"]) == list(CONSTRUCTS)
    assert write_synthetic(tmp_path / "none.jsonl", [], _policy(limit=0, seed=0))["kinds"] == {}


def test_more_than_there_can_be_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a single family of two programs, the third cannot be made; nothing is written."""

    def make(random: Random) -> Sample:
        name = random.choice(("f", "g"))
        return Sample("function/two", "function", f"Write {name}.", f"fn {name}() {{ }}\n")

    monkeypatch.setattr(module, "load_families", lambda: (Family("function/two", "function", make, "two:1"),))

    with pytest.raises(RefusedError, match=r"only 2 different pairs could be made, 3 were wanted\. Ask for fewer"):
        write_synthetic(tmp_path / "s.jsonl", [], _policy(limit=3, seed=0, shares=_TEMPLATES))
    assert not (tmp_path / "s.jsonl").exists()
