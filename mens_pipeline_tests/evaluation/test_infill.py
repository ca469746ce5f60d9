"""Holes of held-out programs, and the score of a piece in one."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import HoleKind, SourceKind, TrainingPair
from mens_pipeline.evaluation.infill import (
    Holes,
    InfillTask,
    Silence,
    choose_threshold,
    draw_silent,
    infill_results,
    infill_tasks,
    insert_rates,
    score_inserts,
    silent_tasks,
)
from mens_pipeline.evaluation.results import Abstention, InfillModel, InsertScore
from mens_pipeline.inference.generation import Completion, Decoding
from mens_pipeline.language import Mode
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.evaluation.scored import WRONG_PIECE

_TESTED = """\
fn double(n: int) to int {
    return n * 2
}

@test
fn doubles() {
    assert(double(2) is 4)
}
"""
_BROKEN_TEST = _TESTED.replace("is 4", "is 5")


def _task(middle: str = "n * 2", source: str = _TESTED) -> InfillTask:
    prefix, suffix = source.split(middle, 1)
    return InfillTask("infill/0000", "a.vox", HoleKind.EXPRESSION, prefix, middle, suffix, Mode.SOURCE, has_tests=True)


def _score(*texts: str, model: InfillModel = "adapter") -> list[InsertScore]:
    completions = [
        Completion(task="infill/0000", sample=0, text=text, num_tokens=3, stopped=True, likelihood=-0.5)
        for text in texts
    ]
    return score_inserts(model, [_task()], completions)


@pytest.fixture(scope="module")
def pairs() -> list[TrainingPair]:
    """Whole files of the seed data."""
    paths = sorted((PROJECT_ROOT / "data/golden").rglob("*.vox"))[::20]
    return [pair_at(path.name, "Write it.", path.read_text(encoding="utf-8")) for path in paths]


def test_the_suite_is_spread_over_the_files(pairs: list[TrainingPair]) -> None:
    first, second = (infill_tasks(pairs, 100) for _ in range(2))
    holes = Counter(task.file for task in first)

    assert first == second
    assert len(first) <= 100
    assert len(holes) > len(pairs) / 2
    assert max(holes.values()) <= -(-100 // len(pairs))
    sources = {pair.source.path: pair.response for pair in pairs if pair.source is not None}
    assert all(task.insert(task.middle) == sources[task.file] for task in first)
    assert all(len(task.middle) < 30 for task in infill_tasks(pairs, 100, lambda text: len(text) < 30))


def test_only_whole_programs_are_cut() -> None:
    part = pair_at("a.vox", "Write.", _TESTED, SourceKind.VOX_DECLARATION)
    wrong = pair_at("b.vox", "Write.", "fn {")
    passing, failing = pair_at("c.vox", "Write.", _TESTED), pair_at("d.vox", "Write.", _BROKEN_TEST)

    tasks = infill_tasks([part, wrong, passing, failing], 40)

    assert {task.file: task.has_tests for task in tasks} == {"c.vox": True, "d.vox": False}
    assert infill_tasks([], 40) == ()


def test_a_piece_is_scored_at_four_levels() -> None:
    texts = ("n * 2", "n *  2", "2 * n", "n * 3", "m * 2", "n *", "")
    scores = _score(*texts)

    found = {s.piece: (s.exact, s.parses, s.resolves, s.passes_tests) for s in scores}
    assert found == {
        "n * 2": (True, True, True, True),
        "n *  2": (True, True, True, True),
        "2 * n": (False, True, True, True),
        "n * 3": (False, True, True, False),
        "m * 2": (False, True, False, False),
        "n *": (False, False, False, False),
        "": (False, True, False, False),
    }
    assert [score.kept for score in scores] == [1, 0.8, 0, 0.8, 0, 0.6, 0]
    assert 0.8 < scores[1].similarity < scores[0].similarity == 1


def test_a_model_without_a_suffix_is_cut_at_the_line_end() -> None:
    text = "n * 2\n}\nfn more() {"

    assert [_score(text, model=model)[0].exact for model in ("left_to_right", "adapter")] == [True, False]


_RIGHT = WRONG_PIECE.model_copy(update={"exact": True, "kept": 1, "passes_tests": True})


def _scores(number: int, chance: int, likelihood: float = -0.5) -> list[InsertScore]:
    return [
        (_RIGHT if place % 10 < chance else WRONG_PIECE).model_copy(
            update={
                "task": f"infill/{place:04}",
                "file": f"{place // 10}.vox",
                "likelihood": likelihood if place % 10 < chance else 4 * likelihood,
                "kind": ("line", "body")[place % 2],
            }
        )
        for place in range(number)
    ]


def test_models_are_compared_on_the_holes_that_both_filled() -> None:
    adapter, ngram = _scores(100, 4), _scores(100, 1)[:50]

    results = infill_results({"adapter": adapter, "served": adapter[:90], "ngram": ngram}, 192)

    assert results.models["adapter"]["all"].exact.short == "40/100 (40.0 %)"
    assert results.shown.short == "90/100 (90.0 %)"
    assert set(results.models["adapter"]) == {"all", "line", "body"}
    assert results.models["ngram"]["all"].num_holes == 50
    difference = results.exact_difference["ngram"]
    assert (difference.num_tasks, difference.only_second, difference.only_first) == (50, 15, 0)
    assert difference.p_better < 0.05


def _choose_threshold(*measured: Any) -> Abstention:
    found = choose_threshold(*measured)
    assert found is not None
    return found


def test_abstaining_shows_likely_pieces() -> None:
    found = _choose_threshold(_scores(200, 3))

    assert found.exact_shown.value is not None
    assert found.silent is None
    assert found.exact_all.value == 0.3
    assert found.exact_shown.value > 0.9
    assert 0.2 < found.coverage < 0.4
    assert 0 <= found.calibration_error < 0.6
    assert choose_threshold(_scores(30, 5)) is None
    assert choose_threshold([]) is None


def test_pieces_with_errors_are_never_shown_and_half_of_the_others_are_exact() -> None:
    scores = _scores(200, 5)
    unresolved = [score.model_copy(update={"resolves": score.exact}) for score in scores]
    all_shown, right, none = map(_choose_threshold, (scores, unresolved, _scores(200, 0)))

    assert (all_shown.coverage, all_shown.exact_shown.value) == (1.0, 0.5)
    assert (right.coverage, right.exact_shown.value) == (0.5, 1.0)
    assert none.exact_shown.value == 0.0


def test_silent_cursors_have_nothing_left_to_write(pairs: list[TrainingPair]) -> None:
    tasks = silent_tasks(pairs, 200)
    asked = Holes((), (), 192, Decoding(max_new_tokens=8), (), tasks).cursors

    assert tasks == silent_tasks(pairs, 200)
    assert silent_tasks(pairs, 5) == silent_tasks(pairs, 5)
    assert len(silent_tasks(pairs, 5)) == 5
    assert {kind for pair in pairs for kind, _ in draw_silent(pair.response, Random(1))} >= {  # noqa: S311 - a draw
        "a finished line",
        "a comment",
        "a string",
        "the end of the file",
    }
    assert len(asked) < len(tasks) / 2
    assert all(task.prefix[-1] not in " \n" and task.suffix[:1] == "\n" for task in asked)


def test_a_piece_at_a_silent_cursor_raises_the_threshold() -> None:
    scores = _scores(200, 5)
    spoken = [score.model_copy(update={"exact": False, "likelihood": -0.5}) for score in scores[::4]]
    wrong = [score.model_copy(update={"resolves": False}) for score in spoken]
    quiet = tuple(score.file for score in scores[::5])
    alone, heard, refused = (_choose_threshold(scores, Silence(tuple(some), quiet)) for some in ((), spoken, wrong))
    rates = [found.silent.value if found.silent is not None else None for found in (alone, heard, refused)]

    assert rates[0] == rates[2] == 1.0
    assert 0.3 < (rates[1] or 0.0) < 0.6
    assert heard.threshold > alone.threshold == refused.threshold


def test_rates_over_nothing_are_none() -> None:
    rates = insert_rates([score.model_copy(update={"passes_tests": None}) for score in _scores(10, 5)])

    assert rates.tests.value is None
    assert rates.exact.value == 0.5
