"""The base with a description of the language and examples in its prompt."""

import re
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.baselines import build_few_shot, examples_among, few_shot_prompt
from mens_pipeline.evaluation.tasks import draw_tasks
from mens_pipeline.language import analyze
from mens_pipeline.settings import FEW_SHOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.evaluation.scored import GOOD, OTHER, task
from mens_pipeline_tests.training.runs import pairs

_TABLE = "@table type Task {\n    title: str\n}\n"
_INDEX = "@index Task.by_title on (title)\n"


def _row(response: str, category: str = "function", prompt: str = "Write it.", **changes: Any) -> TrainingPair:
    return TrainingPair(prompt=prompt, response=response, category=category, **changes)


def test_examples_show_two_functions_and_the_most_frequent_constructs() -> None:
    tested = _row("fn one(n: int) to int {\n    return 1\n}\n", tests="@test fn a() { assert(one(2) is 1) }\n")
    rows = [*pairs(4), tested, *(_row(_TABLE, "table", f"Table {n}.") for n in range(3))]
    rows += [_row(OTHER, "type", f"Type {n}.") for n in range(2)]
    rows.append(_row(_INDEX, "index"))
    found = examples_among(rows)

    assert [row.category for row in found] == ["function", "function", "table", "type", "index"]
    assert found[0] == tested
    assert found == examples_among(reversed(rows))


def test_a_train_set_of_one_construct_gives_distinct_examples() -> None:
    assert len(examples_among(pairs(9))) == len(set(examples_among(pairs(9)))) == 5
    assert len(examples_among(pairs(3))) == 3


@pytest.mark.parametrize(
    "row",
    [
        _row(GOOD, prompt="Write it.\n\nThis is there already: ..."),
        _row(GOOD * 9),
        _row(GOOD + OTHER),
        _row("fn tick() {\n    n = 1\n}\n"),
        _row("fn tick(n: int) to Unit {\n    print(n)\n}\n"),
        _row(OTHER),
        _row("fn ("),
        _row("Prose.", response_mode="prose_only"),
        _row("Prose.", "documentation"),
    ],
    ids=["shows code", "long", "two", "no value", "Unit", "another construct", "no Vox", "prose", "no construct"],
)
def test_unsuitable_rows_are_not_examples(row: TrainingPair) -> None:
    assert examples_among([row]) == ()


def test_the_prompt_holds_description_and_examples() -> None:
    prompt = few_shot_prompt("About Vox.\n", [_row(GOOD, prompt="Write `add`.\n")])

    assert prompt.startswith("You write Vox.")
    assert prompt.endswith(f"\n\nAbout Vox.\n\nRequest: Write `add`.\nAnswer:\n```vox\n{GOOD.strip()}\n```")


def test_the_description_contains_valid_vox() -> None:
    spans = re.findall(r"`((?:type|@table|@test)[^`]*)`", FEW_SHOT.read_text())

    assert len(spans) == 4
    assert [span for span in spans if analyze(span).module is None] == []


def test_a_sample_is_reproducible() -> None:
    tasks = [task(number, prompt=f"Write {number}.") for number in range(20)]
    sample = draw_tasks(tasks, 5)

    assert len(sample) == 5
    assert list(sample) == [one for one in tasks if one in sample]
    assert {one.id for one in draw_tasks(tasks[::-1], 5)} == {one.id for one in sample}
    assert draw_tasks(tasks, None) == tuple(tasks)


def test_examples_come_from_the_train_set_of_the_adapter(tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    write_jsonl(train, pairs(6))
    asked = [task(number, prompt=f"Write {number}.") for number in range(3)]
    few_shot = build_few_shot(asked, 2, FEW_SHOT, train, digest_of(train))

    assert few_shot is not None
    assert len(few_shot.tasks) == 2
    assert few_shot.prompt.count("```vox") == 5
    assert build_few_shot(asked, 0, FEW_SHOT, train, digest_of(train)) is None


def test_a_train_set_that_changed_gives_no_examples(tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    write_jsonl(train, pairs(6))
    before = digest_of(train)
    write_jsonl(train, pairs(5))

    with pytest.raises(RefusedError, match=r"changed; .* few_shot_tasks: 0"):
        build_few_shot([task()], 2, FEW_SHOT, train, before)
    train.unlink()
    with pytest.raises(RefusedError, match="gone; "):
        build_few_shot([task()], 2, FEW_SHOT, train, before)


def test_a_missing_description_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"few_shot\.md: .* Restore the description"):
        build_few_shot([task()], 2, tmp_path / "few_shot.md", tmp_path / "train.jsonl", "")
