"""Records to pairs."""

import pytest

from mens_pipeline.corpus.extract_docs import extract_docs
from mens_pipeline.corpus.extract_vox import extract_vox
from mens_pipeline.corpus.pairs import make_pairs, pair_of
from mens_pipeline.corpus.records import ExtractedRecord
from mens_pipeline.corpus.source_file import SourceFile
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.language.examples import golden_programs


def _records(source: str) -> tuple[ExtractedRecord, ...]:
    found = extract_vox(SourceFile("a.vox", source.encode()))

    assert isinstance(found, tuple)
    return found


def test_a_stated_prompt_is_taken_as_it_stands() -> None:
    """`@training_prompt` is the request, the program without it the answer."""
    (record,) = _records("// @training_prompt: Double a number.\nfn f(n: int) to int { return n * 2 }\n")
    pair = pair_of(record)

    assert (pair.prompt, pair.response) == ("Double a number.", "fn f(n: int) to int { return n * 2 }\n")
    assert (pair.rating, pair.category, pair.difficulty, pair.schema_version) == (5, "function", 2, "vox_dogfood_v1")
    assert pair.source == record.source


def test_a_request_names_what_the_answer_declares() -> None:
    """Construct, name, shape and doc comment of the very declaration."""
    _, fetch, _ = _records(
        "type T { a: int }\n// Fetches it.\n@endpoint(kind: query) fn fetch(n: int) to T { }\nlet x = 1\n"
    )[1:]
    prompt = pair_of(fetch).prompt

    assert "a query endpoint `fetch` with the signature `(n: int) to T`" in prompt
    assert prompt.endswith("Fetches it.")
    assert "`T`" not in prompt


def test_a_file_without_words_is_asked_for_by_all_it_declares() -> None:
    """Nothing else says what the answer is."""
    prompt = pair_of(_records("let x: int = 1\n\nroutes { }\n")[0]).prompt

    assert "a module-level constant `x` of the type `int` and a routes block" in prompt


def test_prose_is_asked_for_as_prose() -> None:
    """The documentation lane has its own mode, family and rating."""
    body = "word " * 40
    page = f"---\ntraining_eligible: true\n---\n## Actors\n\n{body}\n"
    found = extract_docs(SourceFile("p.md", page.encode()), PROJECT_ROOT, lambda _: True)
    (pair,) = make_pairs(found.records)  # type: ignore[union-attr]  # the page is eligible

    assert '"Actors"' in pair.prompt
    assert (pair.response_mode, pair.task_family, pair.lane, pair.rating) == ("prose_only", "docs_qa", "vox_docs_qa", 3)


def test_a_pair_comes_once() -> None:
    """The same request with the same answer is one row."""
    records = _records("fn f() { }\n")

    assert len(list(make_pairs([*records, *records]))) == 1


def test_seed_programs_give_enough_distinct_pairs() -> None:
    """At least 1,400 from programs alone, every request with an answer of its own or nearly so."""
    records = [record for name, source in golden_programs().items() for record in _found(name, source)]
    pairs = list(make_pairs(records))

    assert len(pairs) >= 1400
    assert len({pair.response for pair in pairs}) >= 0.95 * len(pairs)
    assert len({pair.prompt for pair in pairs}) >= 0.99 * len(pairs)


def _found(name: str, source: str) -> tuple[ExtractedRecord, ...]:
    found = extract_vox(SourceFile(name, source.encode()))

    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("source", ["fn f() { }\n", "fn g(n: int) to int { return n }\n"])
def test_the_wording_depends_on_the_text_alone(source: str) -> None:
    """The same record gives the same pair, today and tomorrow."""
    assert pair_of(_records(source)[0]) == pair_of(_records(source)[0])
