"""The validated pairs as an artifact."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.behaviour.observe import passes
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.validated_pairs import (
    PAIRS,
    QUARANTINE,
    STAGE,
    ValidationParams,
    behaviour_report,
    make_pairs,
)
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.extract.extractors import PageExtraction, extract_docs
from mens_pipeline.corpus.schema.account import Account
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.corpus.schema.records import (
    MAX_TEXT,
    ExtractedRecord,
    SourceFile,
    SourceKind,
    TrainingPair,
    read_pairs,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.rows import pair_at, records_of
from mens_pipeline_tests.language.examples import golden_programs


def _make_pairs(record: ExtractedRecord, workers: BehaviourWorkers) -> tuple[TrainingPair, ...]:
    return tuple(make_pairs((record,), workers))


_FETCH = "type T { a: int }\n\n// Fetches it.\n@endpoint(kind: query) fn fetch(n: int) to T { }\n\nlet x = 1\n"


def test_a_stated_prompt_is_used_unchanged(workers: BehaviourWorkers) -> None:
    (record,) = records_of("// @training_prompt: Double a number.\nfn f(n: int) to int { return n * 2 }\n")
    (pair,) = _make_pairs(record, workers)

    assert pair.prompt.startswith("Double a number. For example, `f(")
    assert pair.response == "fn f(n: int) to int { return n * 2 }\n"
    assert (pair.rating, pair.category, pair.difficulty, pair.schema_version) == (5, "function", 2, "vox_dogfood_v1")
    assert pair.source == record.source


def test_a_response_holds_declarations_without_the_comments_above_them(workers: BehaviourWorkers) -> None:
    function = "fn double(n: int) to int {\n    // Twice.\n    return n * 2\n}\n"
    (record,) = records_of(f"// A file.\n\n// Returns `n` times two.\n{function}\n// The end.\n")
    (pair,) = _make_pairs(record, workers)

    assert "Returns `n` times two." in pair.prompt
    assert pair.response == function


@pytest.mark.seed_row(6)
def test_a_prompt_names_the_declaration_of_the_response(workers: BehaviourWorkers) -> None:
    fetch = records_of(_FETCH)[2]
    prompt = _make_pairs(fetch, workers)[0].prompt

    assert "a query endpoint `fetch` with the signature `(n: int) to T`" in prompt
    assert prompt.endswith("Fetches it.")
    assert "`T`" not in prompt


def test_a_declaration_with_dependencies_gives_a_second_pair_that_shows_them(workers: BehaviourWorkers) -> None:
    _, alone, fetch, _ = records_of(_FETCH)
    whole, given = _make_pairs(fetch, workers)

    assert whole.response == given.response == "@endpoint(kind: query) fn fetch(n: int) to T { }\n"
    assert given.prompt.startswith(whole.prompt)
    assert given.prompt.endswith("\n\ntype T { a: int }")
    assert (given.source, given.lane, given.rating) == (whole.source, whole.lane, whole.rating)
    assert len(_make_pairs(alone, workers)) == 1


def test_dependencies_that_do_not_fit_into_a_prompt_are_left_out(workers: BehaviourWorkers) -> None:
    long = f'fn long() to str {{ return "{"x" * 16_000}" }}'
    source = f"fn f() to str {{ return long() }}\n\n{long}\n\nfn g() {{ }}\n"
    cut = next(record for record in records_of(source) if record.name == "f")
    record = cut.model_copy(update={"context": "x" * (MAX_TEXT - 16_000)})

    assert [pair.response for pair in _make_pairs(record, workers)] == ["fn f() to str { return long() }\n"]


def test_the_prompt_of_a_file_without_comments_lists_twelve_declarations(workers: BehaviourWorkers) -> None:
    (pair,) = _make_pairs(records_of("let x: int = 1\n\nroutes { }\n")[0], workers)
    prompt = _make_pairs(records_of("".join(f"let x{n} = {n}\n\n" for n in range(15)))[0], workers)[0].prompt

    assert "a module-level constant `x` of the type `int` and a routes block" in pair.prompt
    assert prompt.count("`x") == 12
    assert "and 3 more declarations" in prompt


@pytest.mark.parametrize(
    "source",
    [
        f"fn {'a' * 65_500}() {{ }}\n",
        f"fn f({', '.join(f'argument{n}: int' for n in range(3_000))}) {{ }}\n",
        "\n\n".join(f"fn {letter * 5_000}({letter * 300}: int) {{ }}" for letter in "abcdefghijkl") + "\n",
    ],
    ids=["name", "signature", "names"],
)
def test_a_prompt_is_never_too_long(source: str, workers: BehaviourWorkers) -> None:
    assert all(len(pair.prompt) < 16_000 for record in records_of(source) for pair in _make_pairs(record, workers))


def test_prose_gives_a_prose_only_pair(workers: BehaviourWorkers) -> None:
    body = "word " * 40
    page = f"---\ntraining_eligible: true\n---\n## Actors\n\n{body}\n"
    found = extract_docs(SourceFile("p.md", page.encode()), PROJECT_ROOT)
    assert isinstance(found, PageExtraction)
    (pair,) = make_pairs(found.records, workers)

    assert '"Actors"' in pair.prompt
    assert (pair.response_mode, pair.task_family, pair.lane, pair.rating) == ("prose_only", "docs_qa", "vox_docs_qa", 3)


@pytest.mark.seed_row(6)
def test_repeated_records_give_one_pair(workers: BehaviourWorkers) -> None:
    records = records_of("fn f() { }\n")

    assert len(list(make_pairs([*records, *records], workers))) == 1


@pytest.mark.slow
def test_seed_programs_give_enough_distinct_pairs(workers: BehaviourWorkers) -> None:
    """At least 1,400 responses from programs alone, and at most 1 % of repeated prompts."""
    records = [record for name, source in golden_programs().items() for record in records_of(source, name)]
    pairs = list(make_pairs(records, workers))

    assert len({pair.response for pair in pairs}) >= 1400
    assert len({pair.prompt for pair in pairs}) >= 0.99 * len(pairs)
    assert all(analyze(pair.response).ok for pair in pairs if str(pair.source and pair.source.path).endswith(".vox"))


def test_a_record_that_the_front_end_rejects_is_refused(workers: BehaviourWorkers) -> None:
    record = records_of("fn f() { }\n")[0].model_copy(update={"text": "fn ("})

    with pytest.raises(RefusedError, match=r"a\.vox: the text of a record is rejected\. Run `mens corpus validate`"):
        _make_pairs(record, workers)


def test_texts_that_would_become_too_long_stay_as_they_were(workers: BehaviourWorkers) -> None:
    long = "x" * (MAX_TEXT // 2 - len('fn f() to str { return "" }\n'))
    both = records_of("".join(f'fn {name}() to str {{ return "{long}" }}\n' for name in "fg"))[0]
    (stated,) = records_of(f"// @training_prompt: {'p' * MAX_TEXT}\nfn f(n: int) to int {{ return n * 2 }}\n")

    assert [pair.response for pair in _make_pairs(both, workers)] == [both.text]
    assert [pair.prompt.count("For example") for pair in _make_pairs(stated, workers)] == [1]


def test_a_record_of_another_kind_gets_the_usual_rating(workers: BehaviourWorkers) -> None:
    record = records_of("fn f() { }\n")[0]
    source = record.source.model_copy(update={"kind": SourceKind.TELEMETRY})

    assert _make_pairs(record.model_copy(update={"source": source}), workers)[0].rating == 3


_SHAPES = """type Shape = | Circle(r: int) | Rect(w: int, h: int)

fn square(n: int) to int { return n * n }

// The area of a shape, circles roughly.
fn area(s: Shape) to int {
    return match s {
        Circle(r) => 3 * square(r)
        Rect(w, h) => w * h
    }
}

fn now(n: int) to int { return std.time.now_ms() + n }
"""


def test_hidden_tests_do_not_repeat_the_examples_of_a_prompt(workers: BehaviourWorkers) -> None:
    records = {record.name: record for record in records_of(_SHAPES)}
    (pair,) = _make_pairs(records["square"], workers)

    assert "`square` with the signature `(n: int) to int`" in pair.prompt
    assert "For example, `square(" in pair.prompt
    assert pair.tests is not None
    assert pair.tests.count("@test") >= 5
    hidden = [line.partition("assert(")[2].partition(" is ")[0] for line in pair.tests.splitlines()]
    assert not any(f"`{call}`" in pair.prompt for call in hidden)
    assert passes(pair.response, pair.tests)
    assert not passes(pair.response.replace("n * n", "n + n"), pair.tests)


def test_hidden_tests_contain_declarations_that_a_response_may_omit(workers: BehaviourWorkers) -> None:
    area = next(record for record in records_of(_SHAPES) if record.name == "area")
    alone, given = _make_pairs(area, workers)

    assert "The area of a shape, circles roughly. For example, `area(" in alone.prompt
    assert given.prompt.startswith(alone.prompt)
    assert "type Shape" in given.prompt
    assert alone.tests == given.tests
    assert alone.tests is not None
    assert "type Shape" not in alone.response
    assert passes(alone.response, alone.tests)
    assert passes(f"{_SHAPES}", alone.tests)
    assert not passes(alone.response.replace("3 *", "4 *"), alone.tests)


def test_functions_without_behaviour_are_counted_with_a_reason(workers: BehaviourWorkers) -> None:
    account = Account[NoBehaviour]()
    pairs = list(make_pairs(records_of(_SHAPES), workers, account))
    plain = next(pair for pair in pairs if "`now`" in pair.prompt and "`area`" not in pair.prompt)

    without = {"several_functions": 1, "nondeterministic": 1}
    assert behaviour_report(account) == {"functions": 4, "observed": 2, "without": without}
    assert plain.tests is None
    assert "For example" not in plain.prompt


def test_mutually_recursive_functions_have_no_hidden_tests(workers: BehaviourWorkers) -> None:
    source = """fn even(n: int) to bool { if n < 1 { return n is 0 } return odd(n - 1) }

fn odd(n: int) to bool { if n < 1 { return false } return even(n - 1) }

fn other(n: int) to int { return n }
"""
    account = Account[NoBehaviour]()
    pairs = list(make_pairs([r for r in records_of(source) if r.name == "odd"], workers, account))

    assert behaviour_report(account)["without"] == {"entangled": 1}
    assert all(pair.tests is None for pair in pairs)


def test_modules_of_user_interfaces_are_not_observed(workers: BehaviourWorkers) -> None:
    record = records_of("fn f(n: int) to int { return n * 2 }\n", "a.vox.ui")
    account = Account[NoBehaviour]()

    assert all(pair.tests is None for pair in make_pairs(record, workers, account))
    assert behaviour_report(account) == {"functions": 0, "observed": 0, "without": {}}


_POLICY = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=9, max_per_template=9)


@pytest.fixture
def corpus(tmp_path: Path, store: ArtifactStore) -> Artifact:
    """Three records of a program, one of which needs another, and a page of prose."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a(n: int) to int { return n * 7 }\n@table type T { n: int }\n")
    (root / "p.md").write_text("---\ntraining_eligible: true\n---\n## Heading\n\n" + "word " * 40 + "\n")
    return build_extracted_corpus(root, store)[0]


def test_pairs_are_made_once_and_counted(corpus: Artifact, store: ArtifactStore) -> None:
    params = ValidationParams(corpus=corpus, others={}, policy=_POLICY)
    first, first_reused = STAGE.build(store, params)
    second, second_reused = STAGE.build(store, params)
    pairs = list(read_pairs(first.path / PAIRS))

    assert (first_reused, second_reused, second) == (False, True, first)
    assert first.manifest["num_pairs"] == {PAIRS: len(pairs)} == {PAIRS: corpus.manifest["num_records"]} == {PAIRS: 4}
    assert first.manifest["lanes"] == {"vox_codegen": 3, "vox_docs_qa": 1}
    assert first.manifest["categories"] == {"documentation": 1, "function": 1, "table": 2}
    assert first.manifest["validation"]["records.jsonl"]["rejected"]["compiler_rejected"] == 0
    assert (first.path / QUARANTINE).read_text() == ""
    assert all(pair.source is not None for pair in pairs)


def test_records_beyond_the_cap_are_quarantined(corpus: Artifact, store: ArtifactStore) -> None:
    policy = _POLICY.model_copy(update={"max_per_source": 1})
    pairs, was_there = STAGE.build(store, ValidationParams(corpus=corpus, others={}, policy=policy))
    quarantine = [json.loads(line) for line in (pairs.path / QUARANTINE).read_text().splitlines()]

    assert not was_there
    assert pairs.manifest["num_pairs"] == {PAIRS: 2}
    assert [(row["line"], row["reason"]) for row in quarantine] == [(2, "source_cap"), (3, "source_cap")]
    assert pairs.manifest["validation"]["records.jsonl"]["rejected"]["source_cap"] == 2


def test_pairs_of_other_sources_are_validated_too(corpus: Artifact, store: ArtifactStore, tmp_path: Path) -> None:
    rows = [pair_at(None, f"p{number}", "fn f() { }", SourceKind.SYNTHETIC, template="t") for number in (1, 2, 2)]
    write_jsonl(tmp_path / "synthetic.jsonl", [*rows, pair_at(None, "bad", "fn (")])
    write_jsonl(tmp_path / "telemetry.jsonl", [])
    others = {name: tmp_path / name for name in ("synthetic.jsonl", "telemetry.jsonl")}
    params = ValidationParams(corpus=corpus, others=others, policy=_POLICY)
    first, _ = STAGE.build(store, params)
    again, was_there = STAGE.build(store, params)
    write_jsonl(tmp_path / "telemetry.jsonl", rows[:1])
    changed, was_the_same = STAGE.build(store, params)

    assert first.manifest["num_pairs"] == {PAIRS: 4, "synthetic.jsonl": 2, "telemetry.jsonl": 0}
    assert list(read_pairs(first.path / "synthetic.jsonl")) == rows[:2]
    rejected = first.manifest["validation"]["synthetic.jsonl"]["rejected"]
    assert (rejected["duplicate"], rejected["compiler_rejected"]) == (1, 1)
    assert len((first.path / QUARANTINE).read_text().splitlines()) == 2
    assert (was_there, again) == (True, first)
    assert (was_the_same, changed.manifest["num_pairs"]["telemetry.jsonl"]) == (False, 1)
    assert sum(first.manifest["lanes"].values()) == sum(first.manifest["num_pairs"].values())
