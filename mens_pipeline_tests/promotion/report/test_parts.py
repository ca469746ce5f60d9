"""The pieces of the page: excerpts, curve, faults, tables."""

import math
from operator import itemgetter

from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.scores import Execution, scores_of_model
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.promotion.report.completions import (
    LONGEST,
    Excerpt,
    excerpt,
    find_faults,
    group_by_construct,
    group_by_passing,
    task_views,
)
from mens_pipeline.promotion.report.page import HEIGHT, TOP, WIDTH, _by_need, _difficulty, _errors, build_curve, visible
from mens_pipeline_tests.evaluation.scored import (
    BROKEN,
    GOOD,
    OTHER,
    completion,
    evaluation,
    needs,
    scored_completions,
    task,
)
from mens_pipeline_tests.every import every


@every(
    "case",
    [
        ("one", None, Excerpt("one")),
        ("one", "it declares nothing", Excerpt("one")),
        ("one", "9:0: code: beyond the text", Excerpt("one")),
        ("one\ntwo\nend", "1:0: c: m", Excerpt("", "", "o", "ne", "\ntwo\nend", has_mark=True)),
        ("one\ntwo\nend", "2:1: c: m", Excerpt("one\n", "t", "w", "o", "\nend", has_mark=True)),
        ("one\ntwo\nend", "2:3: c: m", Excerpt("one\n", "two", "", "", "\nend", has_mark=True)),
        ("one\ntwo\nend", "3:9: c: m", Excerpt("one\ntwo\n", "end", "", "", "", has_mark=True)),
    ],
)
def test_the_place_of_an_error_is_marked_if_it_has_one(case: tuple[str, str | None, Excerpt]) -> None:
    text, error, expected = case

    assert excerpt(text, error) == expected


@every(
    "case",
    [
        ("x" * 9_000, None),
        ("line\n" * 2_000, "1:1: c: m"),
        ("line\n" * 2_000, "1000:1: c: m"),
        ("line\n" * 2_000, "2000:4: c: m"),
        ("x" * 9_000, "1:4500: c: m"),
        ("x" * 9_000, "1:9000: c: m"),
    ],
    ids=itemgetter(1),
)
def test_a_long_text_is_cut_around_its_mark(case: tuple[str, str | None]) -> None:
    text, error = case
    shown = excerpt(text, error)
    whole = shown.before + shown.line_before + shown.marked + shown.line_after + shown.after

    assert len(whole) == LONGEST
    assert whole in text
    assert shown.num_left_out == len(text) - LONGEST
    assert shown.has_mark is (error is not None)


def test_invisible_characters_are_shown_as_codes() -> None:
    assert (
        visible("a\r\nb\t\u00e9\u4e2d\u202e\x07\ud800")
        == "a\nb\t\u00e9\u4e2d\u27e8202E\u27e9\u27e807\u27e9\u27e8D800\u27e9"
    )
    assert visible(7) == 7


def test_a_curve_stays_within_its_picture() -> None:
    curve = build_curve({step: 3.0 / step for step in range(1, 2_001)})

    assert curve is not None
    corners = [tuple(map(float, corner.split(","))) for corner in curve.values.split()]
    assert len(corners) < 500
    assert all(0 <= x <= WIDTH and TOP <= y <= HEIGHT for x, y in corners)
    assert corners == sorted(corners)
    assert curve.summary == "Loss from 3.000 at step 1 to 0.002 at step 2000, lowest 0.002"
    assert [*curve.x_ticks.values()] == ["500", "1000", "1500", "2000"]
    assert [*curve.y_ticks.values()] == ["0", "1", "2", "3"]


def test_a_curve_counts_invalid_values_and_needs_two_points() -> None:
    curve = build_curve({1: 1.0, 2: math.nan, 3: math.inf, 4: 1.0})

    assert curve is not None
    assert (curve.num_left_out, len(curve.values.split())) == (2, 2)
    assert [build_curve(losses) for losses in ({}, {1: 2.0}, {1: math.nan, 2: 1.0})] == [None] * 3


_NO_RESULT = "the result of `add` is `int`, but its body can end here without one"
_PLACEHOLDER = "It has a placeholder in place of code, or a function with a return type and no body."


@every(
    "case",
    [
        (GOOD, True, []),
        ("", True, ["The completion is empty."]),
        ("// no", True, ["The front end rejects it: it declares nothing."]),
        (GOOD, False, ["It did not end within 7 tokens."]),
        (OTHER, True, ["Expected a function; it declares a type."]),
        ("fn sub() { }", True, ["Its declaration does not have the requested name."]),
        ("fn add() to int { }", True, [_PLACEHOLDER, f"Line 1, column 1: {_NO_RESULT} (missing-return)"]),
    ],
)
def test_every_fault_has_a_sentence(case: tuple[str, bool, list[str]]) -> None:
    text, stopped, faults = case

    assert list(find_faults(judge(task(), completion(text, stopped=stopped)), "function")) == faults


@every("text", [GOOD, "", BROKEN, OTHER, "I'm sorry.", "fn add() to int { }", "fn sub() { }"])
def test_only_failing_completions_have_faults(text: str) -> None:
    for stopped in (True, False):
        score = judge(task(requires=(needs("function", name="add"),)), completion(text, stopped=stopped))

        assert score.passed is not bool(list(find_faults(score, "function")))


def test_refusals_and_unmet_requirements_are_faults() -> None:
    refused = judge(task(), completion("I'm sorry, I cannot."))
    unmet = judge(task(requires=(needs("table"),)), completion(GOOD))

    assert "It refuses the request, and writes no program." in list(find_faults(refused, "function"))
    assert list(find_faults(unmet, "function")) == list(unmet.unmet)


def test_prompts_that_the_first_model_did_not_complete_are_hidden() -> None:
    completions = scored_completions(evaluation())
    base = [scored for scored in completions if scored.model == "base"]
    adapter = [scored for scored in completions if scored.model == "adapter"]

    assert task_views({"adapter": [], "base": base}) == ()
    assert [list(view.completions) for view in task_views({"adapter": adapter, "base": base[:1]})] == [
        ["adapter", "base"],
        ["adapter"],
        ["adapter"],
    ]


def test_groups_are_sorted_by_size_and_name() -> None:
    asked = ["type", "function", "actor", "function"]
    completions = scored_completions(evaluation(adapter=(GOOD,) * 4, base=(GOOD,) * 4))
    renamed = [scored.model_copy(update={"asked": asked[n % 4]}) for n, scored in enumerate(completions)]
    groups = group_by_construct(task_views({"adapter": renamed}), is_open=True)

    assert [(group.title, len(group.tasks)) for group in groups] == [("function", 2), ("actor", 1), ("type", 1)]


def test_prompts_with_different_outcomes_come_first() -> None:
    outcomes = {"a": (GOOD, GOOD, BROKEN, GOOD), "b": (BROKEN, GOOD, BROKEN, GOOD), "c": (GOOD, GOOD, BROKEN, BROKEN)}
    models = {
        name: [scored for scored in scored_completions(evaluation(texts, texts)) if scored.model == "adapter"]
        for name, texts in outcomes.items()
    }
    groups = group_by_passing(task_views(models))

    assert [(group.title, len(group.tasks), group.is_open) for group in groups] == [
        ("Only a and b pass", 1, True),
        ("Only a and c pass", 1, True),
        ("None passes", 1, False),
        ("All pass", 1, False),
    ]


def test_parts_come_in_a_useful_order() -> None:
    asked = [task(0), task(1, construct="type", name=None)]
    scores = scores_of_model(asked, [judge(t, completion(GOOD, t)) for t in asked])

    assert _by_need(scores) == ["type", "function"]
    assert sorted(["odd", "hard", "easy"], key=_difficulty) == ["easy", "hard", "odd"]


def test_errors_of_both_models_are_listed() -> None:
    results = evaluation(base=(BROKEN, BROKEN, "x"), adapter=(GOOD, BROKEN, "//")).results
    rows = _errors(results.base.overall.errors, results.adapter.overall.errors)

    assert rows == [
        ("expected-expression", 2, 1),
        ("declares_nothing", 0, 1),
        ("expected-declaration", 1, 0),
    ]


def test_errors_in_names_and_types_of_accepted_completions_are_listed() -> None:
    """The first one is a fault of a failing completion, and none of a passing one."""
    unknown = GOOD.replace("a + b", "a + c")
    evaluated = evaluation(base=(BROKEN, unknown, unknown), adapter=(GOOD, unknown, "fn f() to int { }"))
    passing, failing = evaluated.adapter[1], evaluated.adapter[1].model_copy(update={"stopped": False})
    base, adapter = evaluated.results.base.overall, evaluated.results.adapter.overall
    rows = _errors(base.semantic_errors, adapter.semantic_errors)

    assert rows == [
        ("unknown-name", 2, 1),
        ("missing-return", 0, 1),
    ]
    assert list(find_faults(passing, "function")) == []
    (fault,) = list(find_faults(failing, "function"))[1:]
    assert fault.startswith("Line 2, column 16: ")
    assert "`c`" in fault
    assert "unknown-name" in fault


def test_failed_hidden_tests_are_a_fault() -> None:
    execution = Execution(num_tests=5, num_passed=3, error_class=ErrorClass.WRONG_ANSWER, message="hidden_x: found 3")
    good = judge(task(tests="@test fn hidden() { assert(true) }"), completion(GOOD))
    wrong = good.model_copy(update={"execution": execution})

    assert list(find_faults(good, "function")) == []
    assert not wrong.passed
    (fault,) = find_faults(wrong, "function")
    assert "3/5 hidden tests pass (wrong_answer)" in fault
    assert fault.endswith("hidden_x: found 3")
