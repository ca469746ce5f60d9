"""Examples: written into prompts, and read from them."""

import time

from mens_pipeline.corpus.behaviour.examples import (
    Observation,
    example_tests,
    examples_sentence,
    shown_code,
    stated_examples,
)
from mens_pipeline.corpus.extract.metadata import task_sentence
from mens_pipeline.language import declaration_spans
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse


def test_examples_are_one_sentence() -> None:
    seen = [Observation(f"f({n}, 2)", str(n)) for n in (1, 2, 3)]

    assert examples_sentence(seen[:1]) == "For example, `f(1, 2)` is 1."
    assert examples_sentence(seen[:2]) == "For example, `f(1, 2)` is 1 and `f(2, 2)` is 2."
    assert examples_sentence(seen) == "For example, `f(1, 2)` is 1, `f(2, 2)` is 2 and `f(3, 2)` is 3."


def test_the_comment_above_is_the_task_sentence() -> None:
    source = "// Adds two numbers.\n// vox:skip\n// Never fails.\nfn f(n: int) to int { return n }\nfn g() { }"
    module = parse(source)
    first, second = declaration_spans(source, module)

    assert task_sentence(first.doc) == "Adds two numbers. Never fails."
    assert task_sentence(second.doc) is None


def test_written_examples_are_read_back() -> None:
    seen = [
        Observation("f(1)", "-3"),
        Observation('f("a, b is 2")', '"x. y"'),
        Observation("f([1, 2])", "[Ok(1), None]"),
        Observation("f({ a: 1 })", '{ a: [1], b: "}" }'),
        Observation("f(2.5)", "Some((1, 2))"),
        Observation("f(1dec)", "299.90dec"),
        Observation("f(Red)", "Green"),
        Observation("f(0)", "true"),
    ]

    for example in seen:
        assert stated_examples(f"Write f. {examples_sentence([example])} Done.") == (example,)
    assert stated_examples(f"Write f. {examples_sentence(seen)}") == tuple(seen)


@every_row(
    ("Example: `f(1)` returns `2` and `f(2)` gives `[3]`.", ["2", "[3]"]),
    ("`f(1)` is 6 (120), and `f(2)` equals -1", ["6", "-1"]),
    ("`f(1)` is an error. `f(2)` is `not, a value`. `f(3)` is 4.", ["4"]),
    ("`f(1)` is - and `f(2)` is", []),
    ("`f(1)` is [1, 2 and `f(2)` is )", []),
    ("`f(1)` is (1] or so", []),
    ("`f(1)` is [1, 2", []),
    ("`f(1)` is \u00e9 3", []),
    ("`f(1)` is Ok (in short)", ["Ok"]),
    ("`f(1` is 2, f(3) is 4, `f` is 5", []),
    ("", []),
)
def test_examples_in_other_words_are_read(prompt: str, results: list[str]) -> None:
    assert [example.result for example in stated_examples(prompt)] == results


def test_at_most_16_examples_are_read_and_quickly() -> None:
    begin = time.monotonic()

    assert len(stated_examples("`f(1)` is 2, " * 20_000)) == 16
    assert stated_examples("`f(" * 50_000 + ")" * 50_000) == ()
    assert shown_code(":\n\n" * 10_000) == ""
    assert time.monotonic() - begin < 20


def test_examples_are_compiled_to_one_test_each() -> None:
    tests = example_tests([Observation("f(1)", "2"), Observation("f(2)", "{ a: 3 }")])

    assert tests == "@test fn stated_0() { assert(f(1) is 2) }\n@test fn stated_1() { assert(f(2) is { a: 3 }) }\n"


def test_the_code_that_a_prompt_shows_is_found() -> None:
    code = "type Bin {\n    sku: str\n}\n"

    assert shown_code(f"Write f:\n\nas follows. This is there already:\n\n{code}") == code
    assert shown_code(f"Write f. This is there already:\n\n{code}\nThat is all.") == ""
    assert shown_code("Mend it:\n\n") == ""
