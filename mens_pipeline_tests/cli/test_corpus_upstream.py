"""Data of upstream's toolchain, from the first command to the rows that train."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.training.small_folder import write_folder

_SCHEMA = {"schema_version": "vox_dogfood_v1"}


def _program(number: int) -> str:
    return f"fn f{number}(n: int) to int {{\n    return n * {number} + {number % 7}\n}}\n"


def _organic(number: int) -> dict[str, Any]:
    about = {"category": "vox_function", "format": "vox_organic", "complexity": 2, "coverage": ["decl:fn"], **_SCHEMA}
    return {**about, "augmented": True, "prompt": f"Write a Vox fn called `f{number}`", "response": _program(number)}


def _pair(number: int) -> dict[str, Any]:
    prompt, code = f"Create a function named f{number}", _program(number)
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": code}]
    about = {"category": "function", "difficulty": 2, "rating": 5, "source": f"examples/golden/f{number}.vox"}
    return {**_SCHEMA, "prompt": prompt, "response": code, "messages": turns, "instruction": prompt, **about}


def _follow_up(number: int) -> dict[str, Any]:
    prompt = f"Previous instruction: f{number}\n\nFollow-up: Add error handling to f{number}"
    about = {"category": None, "rating": None, "difficulty": 0.5, "turn": 2, "source": f"examples/golden/f{number}.vox"}
    return {**_SCHEMA, "prompt": prompt, "instruction": "Add it", "output": _program(number + 100), **about}


def _conversation(number: int) -> dict[str, Any]:
    turns = [("user", f"Where is f{number}?"), ("assistant", "..."), ("system", "--- Search Results ---")]
    said = [{"role": role, "content": text} for role, text in [*turns, ("assistant", _program(number))]]
    return {**_SCHEMA, "category": "codebase_search", "format": "conversation", "prompt": "", "turns": said}


_TRACE = {"category": "vox_submit_task", "record_type": "tool_trace", "prompt": "Submit a task.", **_SCHEMA}
_OTHERS: list[dict[str, Any]] = [
    {**_TRACE, "response": '{"tool":"vox_submit_task"}'},
    {**_TRACE, "response": '{"tool":"vox_submit_task"}', "category": "tool_trace"},
    {**_SCHEMA, "category": "documentation", "instruction": "What is an actor?", "output": "An actor ...", "rating": 3},
    {**_organic(900), "schema_version": "vox_dogfood_v2"},
]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _read_document(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_main(*arguments, "--json", folder=folder)

    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.seed_row(36, 48)
def test_counts_agree_between_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", str(write_folder(tmp_path / "base")))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    dogfood = tmp_path / "target" / "dogfood"
    good = [*map(_organic, range(40)), *map(_pair, range(200, 280))]
    good += [*map(_follow_up, range(300, 310)), *map(_conversation, range(500, 510))]
    _write(dogfood / "train.jsonl", [*good, *_OTHERS])
    (tmp_path / "mix.yaml").write_text(
        "sources: [{path: target/dogfood/validated.jsonl, weight: 6.0}]\n"
        "output: target/dogfood/validated_mixed.jsonl\ninclude_lanes: [vox_codegen, vox_tooling, vox_docs_qa]\n"
    )
    validate = ("corpus", "validate", "target/dogfood/train.jsonl", "-o", "target/dogfood/validated.jsonl")
    checked = _read_document(tmp_path, *validate)
    mixed = _read_document(tmp_path, "corpus", "mix", "--config", "mix.yaml")
    trained = _read_document(
        tmp_path, "train", "--data-dir", "target/dogfood", "--preset", "cpu_demo", "--device", "cpu", "--dry-run"
    )
    (source,) = mixed["sources"]
    lanes = {pair.prompt: pair.lane for pair in read_pairs(dogfood / "validated.jsonl")}

    assert (checked["seen"], checked["kept"]) == (144, 142)
    assert {reason: count for reason, count in checked["rejected"].items() if count} == {
        "schema": 1,
        "compiler_rejected": 1,
    }
    assert checked["warned"]["unknown_category"] == 50
    aside = mixed["split"]["heldout"] + sum(mixed["split"]["aside"].values())
    assert source["input_lines"] == source["distinct_lines"] == checked["kept"] - aside
    assert 0 < mixed["split"]["num_heldout_groups"] < 90
    assert trained["data"]["num_rows"] == mixed["total_emitted"] == source["emitted_lines"]
    assert trained["kinds"]["tool_trace"]["rows_shown"] == trained["kinds"]["docs_qa"]["rows_shown"] == 1
    assert any("of the tokens shown are prose (" in note for note in trained["notes"])
    assert (lanes["Submit a task."], lanes["What is an actor?"]) == ("vox_tooling", "vox_docs_qa")
    assert "user: Where is f500?\n\nassistant: ...\n\nsystem: --- Search Results ---" in lanes


@pytest.mark.seed_row(36)
def test_records_of_upstream_become_pairs(tmp_path: Path) -> None:
    about = {"constructs": ["function"], "difficulty": 2, "ast_hash": "1f", "compiler_version": "0.4.0"}
    places = [f"examples/golden/f{number}.vox" for number in range(3)]
    records = [{"source": place, "code": _program(number), **about} for number, place in enumerate(places)]
    _write(tmp_path / "mens" / "data" / "validated.jsonl", records)
    pairs = ("corpus", "pairs", "mens/data/validated.jsonl", "-o", "target/dogfood/train.jsonl")
    first = run_main(*pairs, folder=tmp_path)
    made = (tmp_path / "target" / "dogfood" / "train.jsonl").read_bytes()
    again = ("corpus", "validate", "mens/data/validated.jsonl", "-o", "mens/data/validated.jsonl")
    checked = run_main(*again, folder=tmp_path)
    second = run_main(*pairs, folder=tmp_path)

    assert first.stdout.startswith("3 pairs in target/dogfood/train.jsonl, from 3 records\n")
    assert checked.stdout == "kept 3/3 (100.0 %), recheck on\n"
    assert second.stdout == first.stdout
    assert (tmp_path / "target" / "dogfood" / "train.jsonl").read_bytes() == made
    found = [pair.source.path for pair in read_pairs(tmp_path / "target/dogfood/train.jsonl") if pair.source]
    assert found == places


@pytest.mark.seed_row(4)
@pytest.mark.parametrize("output", ["rows.jsonl", "other.jsonl"])
def test_a_file_stays_unchanged_if_no_row_is_kept(tmp_path: Path, output: str) -> None:
    _write(tmp_path / "rows.jsonl", [{**_TRACE, "response": '{"tool":"vox_submit_task"}'}])
    (tmp_path / "other.jsonl").write_text("before\n")
    before = (tmp_path / output).read_bytes()
    done = run_main("corpus", "validate", "rows.jsonl", "-o", output, folder=tmp_path)
    (refused,) = (tmp_path / output).with_suffix(".quarantine.jsonl").read_text().splitlines()

    assert done.returncode == 1
    assert "rows.jsonl: none of 1 rows was kept (1 compiler_rejected). " in done.stderr
    assert f"{output} is unchanged; " in done.stderr
    assert (tmp_path / output).read_bytes() == before
    assert json.loads(refused)["reason"] == "compiler_rejected"


@pytest.mark.parametrize("command", ["validate", "pairs"])
def test_an_empty_file_replaces_nothing(tmp_path: Path, command: str) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "out.jsonl").write_text("before\n")
    done = run_main("corpus", command, "empty.jsonl", "-o", "out.jsonl", folder=tmp_path)

    assert (done.returncode, (tmp_path / "out.jsonl").read_text()) == (1, "before\n")
    assert "out.jsonl is unchanged" in done.stderr
