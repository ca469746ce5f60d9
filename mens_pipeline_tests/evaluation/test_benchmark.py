"""Benchmarks: read whole, or refused with all mistakes."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import HeldoutTasks
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import SourceKind
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark import Difficulty, load_benchmark, tasks_as_pairs
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.language import Mode
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.evaluation.benches import SOLUTION, task, write_bench
from mens_pipeline_tests.evaluation.scored import completion
from mens_pipeline_tests.every import every

_TESTS = "@test\nfn hidden() { assert(one() is 1) }\n"


def _refusal(folder: Path) -> str:
    with pytest.raises(ConfigurationError, match="Correct the manifest, or the files it names") as error:
        load_benchmark(folder)
    return str(error.value)


def test_reads_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "tests.vox").write_text(_TESTS)
    (tmp_path / "given.vox").write_text("// given\n")
    given = task(tests="tests.vox", file="given.vox", context_files=["one.vox"], never_train=True)
    benchmark = load_benchmark(write_bench(tmp_path, given))
    (read,) = benchmark.tasks

    assert (benchmark.folder, benchmark.description) == (tmp_path, "Small.")
    assert (read.id, read.solution, read.tests) == ("fn_one", SOLUTION, _TESTS)
    assert read.context == ("// given\n", SOLUTION)
    assert (read.spec.difficulty, read.spec.mode, read.spec.never_train) == (Difficulty.MEDIUM, Mode.SOURCE, True)


def test_the_digest_covers_the_manifest_and_every_file(tmp_path: Path) -> None:
    first = load_benchmark(write_bench(tmp_path / "a", task())).digest
    same = load_benchmark(write_bench(tmp_path / "b", task())).digest
    other_text = load_benchmark(write_bench(tmp_path / "b", task(category="fn"))).digest
    write_bench(tmp_path / "b", task())
    (tmp_path / "b" / "one.vox").write_text(SOLUTION + "\n")

    assert len(first) == 64
    assert first == same
    assert len({first, other_text, load_benchmark(tmp_path / "b").digest}) == 3


def test_wrong_completions_are_read_with_their_task(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, task(wrong=["two.vox", "three.vox"]))
    (folder / "two.vox").write_text("fn one() to int { return 2 }\n")
    (folder / "three.vox").write_text("fn one() to int { return 3 }\n")
    before = load_benchmark(folder)
    (folder / "three.vox").write_text("fn one() to int { return 4 }\n")

    assert before.tasks[0].wrong == ("fn one() to int { return 2 }\n", "fn one() to int { return 3 }\n")
    assert load_benchmark(folder).digest != before.digest


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"manifest.json: No such file.*Name a folder that holds a benchmark"):
        load_benchmark(tmp_path)


@pytest.mark.threat("W11")
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"category": None}, "benchmarks.0.category: found nothing, expected a value."),
        ({"difficulty": "trivial"}, "benchmarks.0.difficulty: found \"trivial\", expected 'easy', 'medium' or 'hard'."),
        ({"mode": "Script"}, "benchmarks.0.mode: found \"Script\", expected 'source', 'script' or 'ui'."),
        ({"id": "Fn One"}, 'benchmarks.0.id: found "Fn One", expected a string to match pattern'),
        ({"description": ""}, 'benchmarks.0.description: found "", expected a string to have at least 1 character.'),
        ({"never_train": "x" * 99}, f'benchmarks.0.never_train: found "{"x" * 59}..., expected a valid boolean'),
        ({"desciption": "x"}, "benchmarks.0.desciption: found a key that does not exist. Did you mean `description`?"),
        ({"qqq": 1}, "Expected one of: id, category, description, file, context_files"),
        (
            {"requires": [{"construct": "function", "retruns": "x"}]},
            "benchmarks.0.requires.0.retruns: found a key that does not exist. Did you mean `returns`?",
        ),
        (
            {"requires": [{"construct": "functoin"}]},
            "benchmarks.0.requires.0: construct: found `functoin`, expected a known construct. Did you mean `functi",
        ),
        ({"solution": "/etc/passwd"}, 'benchmarks.0.solution: found "/etc/passwd", expected a path inside the folder'),
        ({"solution": "../one.vox"}, 'benchmarks.0.solution: found "../one.vox", expected a path inside the folder'),
        ({"tests": "a\\b.vox"}, "benchmarks.0.tests: found"),
        ({"wrong": ["two.vox"]}, "task `fn_one`: found no file `two.vox` (No such file or directory), expected one."),
        ({"context_files": ["."]}, 'benchmarks.0.context_files.0: found ".", expected a path inside the folder'),
        ({"solution": "two.vox"}, "task `fn_one`: found no file `two.vox` (No such file or directory), expected one."),
        ({"solution": "a\0b"}, "task `fn_one`: a\0b: "),
        (
            {"solution": "link.vox"},
            "task `fn_one`: link.vox: found a link that leads out of the folder, expected a fil",
        ),
        ({"solution": "bytes.vox"}, "task `fn_one`: bytes.vox: found bytes that are not UTF-8"),
        ({"solution": "blank.vox"}, "task `fn_one`: blank.vox: found 1 characters, expected a text of 1 to 65536."),
        ({"solution": "broken.vox"}, "task `fn_one`: broken.vox: found an error in line 2 ("),
        ({"mode": "ui"}, "task `fn_one`: one.vox: found mode `ui`, which expects a file name with `.vox.ui`."),
        (
            {"requires": [], "semantic_expected_contains": []},
            "task `fn_one`: found neither `requires` nor `tests` nor `semantic_expected_contains`, expected one",
        ),
        (
            {"requires": [{"construct": "function", "name": "two"}]},
            "task `fn_one`: one.vox: Expected a function `two`; found a function `one`. Correct the solution, or `req",
        ),
        ({"semantic_expected_contains": ["2"]}, "one.vox: found no `2` of `semantic_expected_contains`."),
        ({"tests": "broken.vox"}, "task `fn_one`: broken.vox: found an error in line 2 ("),
        ({"tests": "one.vox"}, "task `fn_one`: one.vox: found no `@test` function, expected at least one."),
    ],
)
def test_mistakes_name_place_found_and_expected_value(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    folder = write_bench(tmp_path / "bench", task(**changes))
    (folder / "link.vox").symlink_to(tmp_path / "outside.vox")
    (folder / "bytes.vox").write_bytes(b"\xff")
    (folder / "blank.vox").write_text("\n")
    (folder / "broken.vox").write_text("\nfn f(")

    assert problem in _refusal(folder)


@every(
    "case",
    [
        ({"schema": "v2"}, "schema: found \"v2\", expected 'vox_mens_bench_manifest_v1'."),
        ({"benchmarks": []}, "benchmarks: expected a list to have at least 1 item"),
        ({"benchmarks": "x"}, 'benchmarks: found "x", expected a valid tuple'),
        ({"descriptoin": "x"}, "descriptoin: found a key that does not exist. Did you mean `description`?"),
        ("{", "found invalid JSON"),
        ("[]", "the document: expected a valid dict"),
    ],
)
def test_mistakes_of_the_whole_manifest_are_named(tmp_path: Path, case: tuple[Any, str]) -> None:
    content, problem = case
    if isinstance(content, dict):
        write_bench(tmp_path, task(), **content)
    else:
        (tmp_path / "manifest.json").write_text(content)

    assert problem in _refusal(tmp_path)


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    folder = write_bench(
        tmp_path,
        task(difficulty="none"),
        task(id="b", solution="nowhere.vox"),
        task(id="c", semantic_expected_contains=["x", "y"]),
        task(id="c"),
    )
    message = _refusal(folder)

    assert message.splitlines()[0].endswith("5 mistakes. Correct the manifest, or the files it names:")
    assert len(message.splitlines()) == 6
    assert "task `c`: found 2 tasks with this id, expected one. Rename the others." in message


def test_a_link_within_the_folder_is_a_file(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, task(solution="two.vox"))
    (folder / "two.vox").symlink_to(folder / "one.vox")

    assert load_benchmark(folder).tasks[0].solution == SOLUTION


def test_scripts_are_read_as_scripts(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, task(mode="script", solution="script.vox", semantic_expected_contains=["print"]))
    (folder / "script.vox").write_text("fn one() to int { return 1 }\nprint(one())\n")

    assert load_benchmark(folder).tasks[0].spec.mode is Mode.SCRIPT


def test_tasks_are_pairs_that_keep_their_copies_out_of_training(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", task())
    (pair,) = tasks_as_pairs(load_benchmark(folder))

    assert (pair.prompt, pair.response) == ("Write a function `one` that returns 1.", SOLUTION)
    assert (pair.category, pair.rating, pair.difficulty) == ("function", 5, 2)
    assert pair.tests is None
    assert pair.source is not None
    assert (pair.source.path, pair.source.kind) == ("bench/one.vox", SourceKind.VOX_FILE)
    assert HeldoutTasks([pair], 0.5, 12).overlap(pair) == (SplitReason.PROMPT, "bench/one.vox")
    assert HeldoutTasks([pair], 0.5, 12).overlap(pair.model_copy(update={"prompt": "x"})) is not None


@pytest.mark.seed_row(21, 41)
def test_accepts_a_manifest_with_upstreams_keys_alone(tmp_path: Path) -> None:
    keys = ("id", "category", "description", "semantic_expected_contains")
    theirs = {key: task(category="action", semantic_expected_contains=["fn one", "return"])[key] for key in keys}
    benchmark = load_benchmark(write_bench(tmp_path, theirs))
    (asked,) = benchmark_tasks(benchmark)
    (pair,) = tasks_as_pairs(benchmark)
    scores = [judge(asked, completion(text, asked)) for text in (SOLUTION, SOLUTION.replace("one", "two"), "fn one(")]

    assert (asked.prompt, asked.reference, asked.construct) == (theirs["description"], "", "action")
    assert [score.passed for score in scores] == [True, False, False]
    assert scores[1].unmet == ("Expected the text `fn one`; it is missing.",)
    assert HeldoutTasks([pair], 0.5, 12).overlap(pair_at("a.vox", pair.prompt, SOLUTION)) is not None


def test_requirements_take_precedence_over_substrings(tmp_path: Path) -> None:
    (asked,) = benchmark_tasks(load_benchmark(write_bench(tmp_path, task())))

    assert judge(asked, completion("fn one() to int { 1 }\n", asked)).unmet == ()
