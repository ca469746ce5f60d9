"""A row that solves a task of a benchmark does not train, however it is written."""

import re
from typing import Final

import pytest

from mens_pipeline.corpus.behaviour.repeats import TaskFunctions
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.evaluation.benchmark import BenchmarkTask, load_benchmark, protected_pairs
from mens_pipeline.settings import PROJECT_ROOT

_FOLDER: Final = PROJECT_ROOT / "data" / "heldout_bench"
_HUMANEVAL: Final = _FOLDER / "humaneval_vox"

_WITHOUT_FUNCTIONS: Final = {
    *("hev_138_museum_catalogue", "hev_151_left_luggage", "hev_152_mail_room", "hev_154_safe_with_memory"),
    *("actor_converter", "actor_echo", "back_button_basket", "const_seconds", "mcp_resource_menu", "page_blog"),
    *("query_list_items", "server_health", "type_payment", "url_shop", "workflow_signal", "scheduled_report"),
    *("test_smoke", "test_labelled", "forall_sum", "page_index", "loading_inbox", "loading_gallery"),
    *("component_button", "component_greeting", "component_tally", "component_cast", "component_packing_list"),
    *("fragment_name_tag", "fragment_star_row", "v0_price_table", "v0_player"),
    *("reactive_counter.vox.ui", "reactive_thermometer.vox.ui", "reactive_egg_timer.vox.ui"),
}
"""Tasks whose tests call no function with parameters, or only constant ones, such as tests and pages."""


@pytest.fixture(scope="module")
def protected() -> tuple[TrainingPair, ...]:
    """All tasks of the project."""
    return protected_pairs(_FOLDER)


@pytest.fixture(scope="module")
def functions(protected: tuple[TrainingPair, ...], workers: BehaviourWorkers) -> TaskFunctions:
    """Their functions, ready to be compared."""
    return TaskFunctions(protected, workers)


def test_tasks_have_their_tests(protected: tuple[TrainingPair, ...]) -> None:
    tested = [str(pair.source and pair.source.path) for pair in protected if pair.tests is not None]

    assert sum(path.startswith("humaneval_vox/") for path in tested) == 164
    assert sum(path.startswith("heldout_bench/") for path in tested) == 69


def test_each_solution_is_found(protected: tuple[TrainingPair, ...], functions: TaskFunctions) -> None:
    tested = [pair for pair in protected if pair.tests is not None]
    missed = {
        str(pair.source and pair.source.path)
        for pair, found in zip(tested, functions.find_repeats(tested), strict=True)
        if found is None
    }

    assert {path.rpartition("/")[2].removesuffix(".vox") for path in missed} == _WITHOUT_FUNCTIONS


def _is_one_function(task: BenchmarkTask) -> bool:
    declared = re.findall(r"(?:fn|activity|workflow) (\w+)", task.solution)
    return sum(f"{name}(" in str(task.tests) for name in declared) == 1 and "actor " not in task.solution


def test_wrong_completions_do_not_count_as_solutions(functions: TaskFunctions) -> None:
    tried = [
        (f"humaneval_vox/solutions/{task.id}.vox", TrainingPair(prompt="p", response=wrong))
        for task in load_benchmark(_HUMANEVAL).tasks
        if _is_one_function(task)
        for wrong in task.wrong
    ]
    found = functions.find_repeats([row for _, row in tried])

    assert len(tried) > 300
    assert [label for (own, _), label in zip(tried, found, strict=True) if label == own] == []


def test_a_rewritten_solution_is_found(functions: TaskFunctions) -> None:
    copies = {
        "hev_130_share_of_budget": """fn add_all(xs: list[int]) to int {
    let mut i = 0
    let mut s = 0
    loop {
        if i >= len(xs) { break }
        s += xs[i]
        i += 1
    }
    s
}

fn split_money(pot: int, asked: list[int]) to list[int] {
    let whole = add_all(asked)
    if whole isnt 0 {
        let mut parts = []
        let mut left_over = []
        for a in asked {
            parts = parts.push(pot * a / whole)
            left_over = left_over.push(pot * a % whole)
        }
        let mut missing = pot - add_all(parts)
        while missing > 0 {
            let mut at = 0
            let mut k = 1
            while k < len(left_over) {
                if left_over[k] > left_over[at] { at = k }
                k += 1
            }
            parts[at] = parts[at] + 1
            left_over[at] = 0
            missing = missing - 1
        }
        return parts
    }
    asked
}
"""
    }
    rows = [TrainingPair(prompt="p", response=copy) for copy in copies.values()]

    assert functions.find_repeats(rows) == [f"humaneval_vox/solutions/{name}.vox" for name in copies]
