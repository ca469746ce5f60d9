"""Rows that train, rows that measure the loss, and rows that are left out with a reason."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.corpus.schema.reasons import NotShown
from mens_pipeline.corpus.schema.records import Lane, SourceKind, TrainingPair
from mens_pipeline.training.examples import Examples
from mens_pipeline.training.plan import build_columns
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.corpus.rows import source_at
from mens_pipeline_tests.training.encoded import encode_examples
from mens_pipeline_tests.training.small_folder import Encoder

_TOKENIZER = Encoder()


def _pair(**fields: Any) -> TrainingPair:
    usual: dict[str, Any] = {"prompt": "Write a function.", "response": "fn f() { }"}
    return TrainingPair(**{**usual, **fields})


def _examples(pairs: Iterable[TrainingPair], **recipe: Any) -> Examples:
    return encode_examples(pairs, Recipe(**{"validation_split_ratio": 0.0, **recipe}), _TOKENIZER, "You write Vox.")


@pytest.mark.parametrize(
    ("fields", "recipe", "reason"),
    [
        ({"rating": 2}, {}, NotShown.LOW_RATING),
        ({"rating": 4}, {"min_rating": 5}, NotShown.LOW_RATING),
        ({"category": "actor"}, {"category_filter": ("mcp", "table")}, NotShown.OTHER_CATEGORY),
        ({"difficulty": 2}, {"min_difficulty": 3}, NotShown.OTHER_DIFFICULTY),
        ({"difficulty": 9}, {"max_difficulty": 8}, NotShown.OTHER_DIFFICULTY),
        ({"response": "long " * 400}, {}, NotShown.TOO_LONG),
        ({"prompt": "long " * 400}, {}, NotShown.TOO_LONG),
    ],
)
def test_every_row_that_is_not_shown_has_a_reason(
    fields: dict[str, Any], recipe: dict[str, Any], reason: NotShown
) -> None:
    examples = _examples([_pair(**fields), _pair(rating=5, category="mcp_tool")], **recipe)

    assert examples.dropped == {reason: 1}
    assert (len(examples.train), len(examples.validation), examples.seen) == (1, 0, 2)
    assert examples.num_lost == 0


def test_categories_match_by_part() -> None:
    agents = [_pair(category="agent_answer"), _pair(lane=Lane.DOGFOOD_AGENT), _pair(task_family="agent_work")]
    pairs = [*agents, _pair(category="function")]

    assert len(_examples(pairs, category_filter=("agent", "mcp")).train) == len(agents)


def test_a_row_at_a_limit_is_shown() -> None:
    """Limits of difficulty and of length."""
    pair = _pair(response="let x = 1\n" * 9)
    (example,) = _examples([pair]).train

    columns = _examples([_pair(difficulty=n) for n in (3, 5, 7)], min_difficulty=3, max_difficulty=7).columns
    assert columns.difficulties.tolist() == [3, 5, 7]
    assert len(example) > 16
    assert len(_examples([pair], max_length=len(example)).train) == 1
    assert _examples([pair], max_length=len(example) - 1).dropped == {NotShown.TOO_LONG: 1}


def _rows(num_files: int, per_file: int, kind: SourceKind = SourceKind.VOX_FILE) -> list[TrainingPair]:
    return [
        _pair(prompt=f"{file} {row}", source=source_at(f"src/{file}.vox", kind))
        for row in range(per_file)
        for file in range(num_files)
    ]


def _prompts(examples: Examples, pairs: Iterable[TrainingPair]) -> set[str]:
    ids = {tuple(_examples([pair]).train[0].prompt): pair.prompt for pair in pairs}
    return {ids[example.prompt] for example in examples.validation}


def test_whole_files_measure_the_loss() -> None:
    """All rows of a file either train or measure; about the requested share of files measures."""
    rows = _rows(60, 3)
    examples = _examples(rows, validation_split_ratio=0.2)
    measuring = _prompts(examples, rows)
    files = {prompt.split()[0] for prompt in measuring}

    assert 5 <= len(files) <= 20
    assert measuring == {pair.prompt for pair in rows if pair.prompt.split()[0] in files}
    assert len(examples.train) == len(rows) - len(measuring)
    assert examples.num_lost == 0


def test_the_seed_decides_which_files_measure() -> None:
    rows = _rows(60, 1)
    first, again, other = (
        _prompts(_examples(some, validation_split_ratio=0.2, seed=seed), rows)
        for some, seed in ((rows, 1), (rows[::-1], 1), (rows, 2))
    )

    assert first == again
    assert first != other


@pytest.mark.parametrize("pairs", [[_pair()] * 40, _rows(40, 1, SourceKind.SYNTHETIC)])
def test_rows_without_a_file_always_train(pairs: list[TrainingPair]) -> None:
    assert len(_examples(pairs, validation_split_ratio=0.49).train) == len(pairs)


def test_the_account_counts_rows_and_tokens() -> None:
    examples = _examples(
        [_pair(), _pair(category="tool_trace", response="fn g() { return 1 }"), _pair(rating=1)],
        trajectory_weighting=True,
    )
    lengths = [len(example) for example in examples.train]

    assert examples.num_lost == 0
    assert examples.account() == {
        "num_rows": 3,
        "num_train": 2,
        "num_validation": 0,
        "not_shown": {"low_rating": 1, "other_category": 0, "other_difficulty": 0, "too_long": 0},
        "num_tokens": sum(lengths),
        "num_supervised_tokens": sum(len(example.completion) for example in examples.train),
        "longest": max(lengths),
        "weighted_rows": 1,
    }
    none: Any = ()
    assert Examples(train=none, columns=build_columns(())).account()["longest"] == 0
    examples.kept -= 1
    assert examples.num_lost, "a lost row is noticed"


_PAIRS = st.builds(
    _pair,
    rating=st.integers(1, 5),
    difficulty=st.integers(1, 10),
    category=st.sampled_from(("actor", "mcp_tool")),
    response=st.sampled_from(("x", "y " * 200)),
    source=st.none() | st.integers(0, 20).map(lambda number: source_at(f"{number}.vox")),
)


@given(st.lists(_PAIRS, max_size=20), st.integers(0, 9))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_no_row_is_lost(pairs: list[TrainingPair], seed: int) -> None:
    options: dict[str, Any] = {"seed": seed, "category_filter": ("actor",), "max_length": 100, "max_difficulty": 8}
    examples = _examples(pairs, validation_split_ratio=0.3, **options)
    shown = sorted([*examples.train, *examples.validation], key=repr)

    assert examples.num_lost == 0
    assert examples.seen == len(pairs)
    assert shown == sorted(_examples(pairs, **options).train, key=repr)
