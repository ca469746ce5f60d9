"""The page for people: its parts, and text of models that never becomes markup."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.evaluation.evaluate import Evaluation, evaluate_completions
from mens_pipeline.evaluation.tasks import FewShot, Suite, Task
from mens_pipeline.inference.generation import Completion, Decoding
from mens_pipeline.promotion.policy import GateName, load_gate_policy
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import (
    BROKEN,
    GOOD,
    OTHER,
    PROGRESS,
    SUBJECT,
    answers_to,
    completion,
    evaluation,
    scored_completions,
)
from mens_pipeline_tests.evaluation.scored import task as make_task
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import receipt_of, said

_VOID = {"meta", "input", "link", "br", "hr", "img"}
_THRESHOLDS = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("ci")
_HOSTILE = (
    '</code></pre></script><img src=x onerror="alert(1)"><script>alert(2)</script>{{ 7 * 7 }}&lt;\x00\x1b[31m\u202e'
)
_TESTS = "@test fn it_adds() to Unit { assert(add(1, 2) is 3) }"
_LOSSES = {1: 2.0, 2: 1.5, 3: 1.0}


def _page(evaluated: Evaluation | None = None, receipt: Receipt | None = None) -> str:
    evaluated = evaluated or evaluation()
    return report_page(evaluated.results, scored_completions(evaluated), _LOSSES, receipt)


def _page_of(
    tasks: list[Task],
    base: Sequence[str],
    adapter: Sequence[str],
    others: dict[str, tuple[Completion, ...]] | None = None,
    **about: Any,
) -> str:
    completions = {"base": answers_to(tasks, base), "adapter": answers_to(tasks, adapter), **(others or {})}
    return _page(evaluate_completions(tasks, completions, SUBJECT, Decoding(), PROGRESS, **about))


def _words(page: str) -> str:
    return " ".join(_Balance(page).text.split())


def _row(page: str, label: str, suite: str = "All prompts") -> str:
    part = next(part for part in page.split('<tr class="suite">')[1:] if f">{suite}" in part)
    return next(row for row in part.split("<tr>") if f">{label}<" in row)


class _Balance(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("champion", [None, (GOOD, BROKEN, OTHER)], ids=["no champion", "champion"])
def test_the_page_is_well_formed(champion: tuple[str, ...] | None) -> None:
    parsed = _Balance(_page(evaluation(champion=champion), receipt_of(said(GateName.COVERAGE, passed=True))))
    ids = [value for name, value in parsed.attributes if name == "id"]

    assert parsed.open == []
    assert len(ids) == len(set(ids))
    assert parsed.tags.count("title") == 2
    assert ("lang", "en") in parsed.attributes


def test_links_stay_within_the_page() -> None:
    parsed = _Balance(_page())
    links = [value for name, value in parsed.attributes if name == "href"]
    ids = {f"#{value}" for name, value in parsed.attributes if name == "id"}

    assert links
    assert set(links) <= ids
    assert not {name for name, _ in parsed.attributes} & {"src", "srcset", "style", "onclick"}
    assert "http" not in _page().replace("http-equiv", "")


def test_the_parts_are_in_order() -> None:
    parts = re.findall(r'<section id="(\w+)"', _page())

    assert parts == ["first", "evaluated", "scores", "curve", "constructs", "errors", "failures", "passes"]


def test_completions_are_shown_as_text() -> None:
    plain = _Balance(_page(evaluation(adapter=(GOOD, GOOD, "x"))))
    hostile = _Balance(_page(evaluation(adapter=(GOOD, GOOD, _HOSTILE))))

    assert hostile.tags == plain.tags
    assert "alert(2)</script>{{ 7 * 7 }}&lt;\u27e800\u27e9\u27e81B\u27e9[31m\u27e8202E\u27e9" in hostile.text
    assert not any(name.startswith("on") for name, _ in hostile.attributes)


@every("field", ["prompt", "reference", "difficulty", "id"])
def test_fields_of_tasks_are_shown_as_text(field: str) -> None:
    changes: dict[str, Any] = {field: f"<img src=x>{field}"}
    parsed = _Balance(_page_of([make_task(**changes)], (BROKEN,), (BROKEN,)))

    assert "img" not in parsed.tags
    assert f"<img src=x>{field}" in parsed.text


def test_only_the_scripts_of_the_page_may_run() -> None:
    page = _page()

    assert "default-src 'none'" in page
    assert page.count("<script>") == 1
    assert "script-src 'sha256-" in page


def test_the_champion_has_a_column_only_if_there_is_one() -> None:
    without, with_one = _page(), _page(evaluation(champion=(GOOD, GOOD, GOOD)))

    assert '<th scope="col">champion</th>' not in without
    assert "against the champion" not in without
    assert '<th scope="col">champion</th>' in with_one
    assert "Adapter against the champion: parse rate -33.3 points (p = 1.000)" in with_one


def test_the_base_with_examples_has_a_column_and_a_sentence() -> None:
    """Over its sample of prompts; its prompt is text, and its completions are shown with the others."""
    tasks = [make_task(0, tests=_TESTS), make_task(1, Suite.BENCHMARK)]
    examples = {"few_shot": answers_to(tasks[:1], (BROKEN,))}
    few_shot = FewShot("<b>Told</b>", (tasks[0],))
    page = _page_of(tasks, (BROKEN,) * 2, (GOOD,) * 2, examples, few_shot=few_shot)
    row = _row(page, "pass@1", "Benchmark")

    assert '<th scope="col">base</th><th scope="col">few-shot</th><th scope="col">adapter' in page
    assert '<td><span class="figure">-</span></td>' in row
    assert "as available without training: parse rate +100.0 points (p = 1.000)" in page
    assert "over 1 prompts; hidden tests +100.0 points (p = 1.000), over 1." in page
    assert "&lt;b&gt;Told&lt;/b&gt;" in page
    assert page.partition('id="failures"')[2].count("<summary>few-shot fails</summary>") == 1
    assert "few-shot" not in _page()


def test_served_completions_have_a_column_and_a_sentence() -> None:
    page = _page(evaluation(adapter=(GOOD, BROKEN, BROKEN), second=(None, GOOD, GOOD)))

    assert '<th scope="col">adapter</th><th scope="col">fallback</th>' in page
    assert "2 completions were not Vox and were generated again, constrained by the parser; 1 of them were" in page
    assert page.partition('id="failures"')[2].count("<summary>constrained by the parser passes</summary>") == 2
    assert "fallback" not in _page()


def test_synthetic_tasks_are_separate() -> None:
    known = make_task(1, Suite.NEW_CONSTANTS, tests=_TESTS)
    families = {"families": answers_to([known], (BROKEN,))}
    page = _page_of([make_task(0)], (BROKEN,), (GOOD,), families, families=[known])
    words = _words(page)

    assert "Synthetic tasks from training with new constants; not part of other figures parse rate" in words
    assert "of a family that is not in training" not in words
    assert "new_constants/0001" in page
    assert "Failures (0) Passes (1) Synthetic tasks (1)" in words
    assert "Synthetic tasks" not in _page()


def test_prompts_without_valid_tests_are_counted() -> None:
    page = _page_of([make_task(0)], (BROKEN,), (GOOD,), num_tests_dropped=3)

    assert "<dt>Without hidden tests</dt><dd>3 prompts whose reference fails their tests</dd>" in page
    assert "Without hidden tests" not in _page()


def test_scores_are_shown_with_their_difference() -> None:
    num = 12
    page = _page(evaluation(base=(BROKEN,) * num, adapter=(GOOD,) * num))
    row = _row(page, "parse rate")

    assert ">0/12 (0.0 %)<" in row
    assert ">12/12 (100.0 %)<" in row
    assert '<td class="good">' in row
    assert '<span class="difference">+100.0 points</span><span class="meaning">p &lt; 0.001</span>' in row


def test_a_clear_rise_of_stubs_is_bad() -> None:
    page = _page(evaluation(base=(GOOD,) * 12, adapter=("fn add() to int { }",) * 12))
    row = _row(page, "stubs")

    assert '<td class="bad">' in row
    assert "+100.0 points" in row


def test_a_missing_benchmark_is_shown_as_left_out() -> None:
    evaluated = evaluation(num_benchmark=0)
    results = evaluated.results.model_copy(update={"subject": SUBJECT.model_copy(update={"benchmark_sha256": None})})
    page = report_page(results, scored_completions(evaluated), {}, None)

    assert "<dd>left out</dd>" in page
    assert "Benchmark: " not in page
    assert "Fewer than two values were recorded." in page


def test_several_samples_are_counted() -> None:
    asked = [make_task(0), make_task(1, Suite.BENCHMARK)]
    completions = tuple(completion(text, t, n) for t in asked for n, text in enumerate((BROKEN, GOOD)))
    decoding = Decoding(num_samples=2, temperature=0.5)
    evaluated = evaluate_completions(asked, {"base": completions, "adapter": completions}, SUBJECT, decoding, PROGRESS)
    page = _page(evaluated)

    assert "adapter 1/2 pass, 7 tokens" in page
    assert "pass@2" in page
    assert "pass@2" not in _page()
    assert "temperature 0.5, seed 1337" in page
    assert "best-of-2" in page
    assert "best-of" not in _page()


def test_names_have_no_row_if_no_task_requires_one() -> None:
    assert "right name" not in _page_of([make_task(name=None)], (GOOD,), (GOOD,))
    assert "right name" in _page()


def test_failures_show_their_error_and_its_place() -> None:
    page = _page(evaluation(base=(GOOD, GOOD), adapter=(BROKEN, GOOD)))
    failures = page.partition('<section id="failures">')[2].partition('<section id="passes">')[0]

    assert "<li>Line 2, column 15: expected an expression, found end of line (expected-expression)</li>" in failures
    assert "<mark>    return a +<b> </b></mark>" in failures
    assert "<summary>base passes</summary>" in failures
    assert "<summary>reference</summary>" in failures
    assert failures.count('<details class="task" open>') == 1


def test_passes_are_folded() -> None:
    page = _page(evaluation(adapter=(GOOD, GOOD, GOOD)))
    passes = page.partition('<section id="passes">')[2]

    assert passes.count('<details class="task">') == 3
    assert '<details class="task" open>' not in passes
    assert "Passes (3)" in page


def test_three_completions_come_before_the_figures() -> None:
    """One that passes and two that fail; one is enough if none fails."""

    def first(*adapter: str) -> str:
        page = _page(evaluation(adapter=adapter))
        return page.partition('<section id="first">')[2].partition("</section>")[0]

    mixed, right = first(BROKEN, GOOD, BROKEN), first(GOOD, GOOD, GOOD)

    assert (mixed.count(">adapter passes,"), mixed.count(">adapter fails,")) == (1, 2)
    assert (right.count(">adapter passes,"), right.count(">adapter fails,")) == (1, 0)


def test_no_passes_and_no_rejections_are_stated() -> None:
    failing, passing = _page(evaluation(adapter=(BROKEN,) * 3)), _page(evaluation((GOOD,) * 3, (GOOD,) * 3))

    assert '<p class="note">None.</p>' in failing.partition('<section id="passes">')[2]
    assert "Every completion was accepted." in passing


def _run_page(base: tuple[str, ...], adapter: tuple[str, ...]) -> str:
    return _words(_page_of([make_task(number, tests=_TESTS) for number in range(len(base))], base, adapter))


def test_outcomes_of_hidden_tests_are_counted() -> None:
    divides, subtracts = GOOD.replace("a + b", "a / 0"), GOOD.replace("a + b", "a - b")
    words = _run_page((divides, BROKEN), (subtracts, subtracts))

    assert "over the 2 prompts with hidden tests" in words
    assert "ClassBaseAdapter wrong_answer02 parse10 runtime10 Filter by" in words
    assert "Hidden tests function21/2 (50.0 %)2/2 (100.0 %)0/2 (0.0 %)0/2 (0.0 %)" in words


def test_the_table_of_runs_is_omitted_without_failures() -> None:
    assert "Execution Every completion passed its hidden tests." in _run_page((GOOD,), (GOOD,))
    assert "Execution" not in _page()


def test_missing_constructs_show_how_many_tasks_request_them() -> None:
    page = _page(evaluation(adapter=(BROKEN,) * 3))

    assert '<code>function</code> <span class="meaning">requested in 3</span>' in page
    assert '<code>workflow</code> <span class="meaning">never requested</span>' in page


def test_the_same_arguments_give_the_same_page() -> None:
    assert _page(receipt=receipt_of()) == _page(receipt=receipt_of())


def test_two_hundred_tasks_fit_into_two_megabytes() -> None:
    long = "fn add() to int {\n" + "    let x = 1\n" * 300
    page = _page(evaluation(base=(long,) * 200, adapter=(long,) * 200))

    assert len(page.encode()) < 2_000_000
    assert "more characters are not shown." in page


def test_every_file_of_the_page_is_shipped() -> None:
    folder = PROJECT_ROOT / "mens_pipeline" / "promotion" / "report"

    assert {path.name for path in Path(folder).iterdir() if path.suffix not in {".py", ""}} == {
        *("page.html.jinja",),
        *("style.css", "filter.js"),
    }
