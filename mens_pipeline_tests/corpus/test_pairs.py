"""Records to pairs."""

import pytest

from mens_pipeline.corpus.extract_docs import PageExtraction, extract_docs
from mens_pipeline.corpus.pairs import make_pairs, pairs_of
from mens_pipeline.corpus.records import MAX_TEXT, SourceKind
from mens_pipeline.corpus.source_file import SourceFile
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.rows import records_of
from mens_pipeline_tests.language.examples import golden_programs

_FETCH = "type T { a: int }\n\n// Fetches it.\n@endpoint(kind: query) fn fetch(n: int) to T { }\n\nlet x = 1\n"


def test_a_stated_prompt_is_taken_as_it_stands() -> None:
    """`@training_prompt` is the request, the program without it the answer."""
    (record,) = records_of("// @training_prompt: Double a number.\nfn f(n: int) to int { return n * 2 }\n")
    (pair,) = pairs_of(record)

    assert (pair.prompt, pair.response) == ("Double a number.", "fn f(n: int) to int { return n * 2 }\n")
    assert (pair.rating, pair.category, pair.difficulty, pair.schema_version) == (5, "function", 2, "vox_dogfood_v1")
    assert pair.source == record.source


def test_a_request_names_what_the_answer_declares() -> None:
    """Construct, name, shape and doc comment of the very declaration."""
    fetch = records_of(_FETCH)[2]
    prompt = pairs_of(fetch)[0].prompt

    assert "a query endpoint `fetch` with the signature `(n: int) to T`" in prompt
    assert prompt.endswith("Fetches it.")
    assert "`T`" not in prompt


def test_a_declaration_that_needs_others_is_asked_for_once_more_with_these_given() -> None:
    """The second request shows them; both answers are the declaration alone."""
    _, alone, fetch, _ = records_of(_FETCH)
    whole, given = pairs_of(fetch)

    assert whole.response == given.response == "@endpoint(kind: query) fn fetch(n: int) to T { }\n"
    assert given.prompt.startswith(whole.prompt)
    assert given.prompt.endswith("\n\ntype T { a: int }")
    assert (given.source, given.lane, given.rating) == (whole.source, whole.lane, whole.rating)
    assert len(pairs_of(alone)) == 1


def test_what_does_not_fit_into_a_request_is_not_given() -> None:
    """The declaration is still asked for."""
    long = f'fn long() to str {{ return "{"x" * 16_000}" }}'
    source = f"fn f() to str {{ return long() }}\n\n{long}\n\nfn g() {{ }}\n"
    cut = next(record for record in records_of(source) if record.name == "f")
    record = cut.model_copy(update={"context": "x" * (MAX_TEXT - 16_000)})

    assert [pair.response for pair in pairs_of(record)] == ["fn f() to str { return long() }\n"]


def test_a_file_without_words_is_asked_for_by_all_it_declares() -> None:
    """Nothing else says what the answer is."""
    (pair,) = pairs_of(records_of("let x: int = 1\n\nroutes { }\n")[0])

    assert "a module-level constant `x` of the type `int` and a routes block" in pair.prompt


def test_a_file_with_many_declarations_is_not_asked_for_by_all_of_them() -> None:
    """A dozen are named, the others counted."""
    prompt = pairs_of(records_of("".join(f"let x{n} = {n}\n\n" for n in range(15)))[0])[0].prompt

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
def test_a_request_is_never_too_long(source: str) -> None:
    """Long names and lists are left out of it."""
    assert all(len(pair.prompt) < 16_000 for record in records_of(source) for pair in pairs_of(record))


def test_prose_is_asked_for_as_prose() -> None:
    """The documentation lane has its own mode, family and rating."""
    body = "word " * 40
    page = f"---\ntraining_eligible: true\n---\n## Actors\n\n{body}\n"
    found = extract_docs(SourceFile("p.md", page.encode()), PROJECT_ROOT, lambda _: True)
    assert isinstance(found, PageExtraction)
    (pair,) = make_pairs(found.records)

    assert '"Actors"' in pair.prompt
    assert (pair.response_mode, pair.task_family, pair.lane, pair.rating) == ("prose_only", "docs_qa", "vox_docs_qa", 3)


def test_a_pair_comes_once() -> None:
    """The same request with the same answer is one row."""
    records = records_of("fn f() { }\n")

    assert len(list(make_pairs([*records, *records]))) == 1


def test_seed_programs_give_enough_distinct_pairs() -> None:
    """At least 1,400 answers from programs alone, and hardly a request that comes twice."""
    records = [record for name, source in golden_programs().items() for record in records_of(source, name)]
    pairs = list(make_pairs(records))

    assert len({pair.response for pair in pairs}) >= 1400
    assert len({pair.prompt for pair in pairs}) >= 0.99 * len(pairs)
    assert all(analyze(pair.response).ok for pair in pairs if str(pair.source and pair.source.path).endswith(".vox"))


@pytest.mark.parametrize("source", ["fn f() { }\n", "fn g(n: int) to int { return n }\n"])
def test_the_wording_depends_on_the_text_alone(source: str) -> None:
    """The same record gives the same pair, today and tomorrow."""
    assert pairs_of(records_of(source)[0]) == pairs_of(records_of(source)[0])


def test_a_record_that_the_front_end_rejects_is_refused() -> None:
    """A file of records may come from anywhere."""
    record = records_of("fn f() { }\n")[0].model_copy(update={"text": "fn ("})

    with pytest.raises(RefusedError, match=r"a\.vox: the text of a record is rejected\. Run `mens corpus validate`"):
        pairs_of(record)


def test_a_record_of_another_kind_gets_the_usual_rating() -> None:
    """Extraction makes no such records, but a file of records may hold them."""
    record = records_of("fn f() { }\n")[0]
    source = record.source.model_copy(update={"kind": SourceKind.TELEMETRY})

    assert pairs_of(record.model_copy(update={"source": source}))[0].rating == 3
