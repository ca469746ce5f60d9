"""Code that prompts show, as part of what is learnt."""

import pytest

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.training.examples import code_in, make_examples
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.training.small_folder import Encoder

_CODE = "type Point {\n    x: int\n}\n\nfn double(n: int) to int {\n    return n + n\n}\n"


def _pair(prompt: str) -> TrainingPair:
    return TrainingPair(prompt=prompt, response="fn f() { }\n")


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (f"Write a function `f`.\n\nIt goes with this code:\n\n{_CODE}", _CODE),
        (f"Rename `double` in this Vox program.\n\n{_CODE}", _CODE),
        ("Write a function `f` with the signature `(n: int) to int`.", None),
        ("Write a function `f`.\n\nIt doubles `n`: `f(2)` is 4.", None),
        (
            "The compiler rejects this program.\n\nfn f( {\n}\n\nIt says:\n1:7: error[expected-name]: expected a name",
            None,
        ),
        ("The compiler rejects this program.\n\nfn f() {\n}\n}", None),
        ("Write it.\n\n\n", None),
    ],
)
def test_only_programs_that_end_a_prompt_are_code(prompt: str, code: str | None) -> None:
    """Signatures in sentences, examples and programs with mistakes are none."""
    assert code_in(_pair(prompt)) == code


def test_the_tokens_of_the_code_are_found() -> None:
    """From the blank line before it, at the earliest, up to the end of the turn; none by default, nor to validate."""
    pairs = [_pair(f"Rename `double`.\n\n{_CODE}"), _pair("Write a function `f`.")]
    usual, tokenizer = Recipe(validation_split_ratio=0.0), Encoder()
    with_code, without = make_examples(
        pairs, usual.model_copy(update={"prompt_code_weight": 0.25}), tokenizer, "You write Vox."
    ).train
    first, last = with_code.code
    shown = tokenizer.inner.decode(with_code.prompt[first:last])

    assert shown.strip() == _CODE.strip()
    assert with_code.code_weight == 0.25
    assert without.code == (0, 0)
    assert [example.code for example in make_examples(pairs, usual, tokenizer, "You write Vox.").train] == [(0, 0)] * 2
