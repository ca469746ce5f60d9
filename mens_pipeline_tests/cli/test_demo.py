"""`mens demo`: the adapter that comes with the code fits the code, and completes without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.cli.demo import (
    CONTRACT,
    DEMO,
    REMAKE,
    TASKS,
    DemoContract,
    build_contract,
    describe_score,
    refuse_stale,
)
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.language import analyze, grammar_fingerprint
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import Base, FileTokenizer, digest_of_folder
from mens_pipeline.models.base_wheels import WHEEL_BASES
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.evaluation.scored import BROKEN, completion, task


def _base(folder: Path = DEMO) -> Base:
    name = Adapter.open(folder).manifest.base_model.name
    return find_base_model(name, None, load_settings().cache_root / "base_models")


def _build_contract(folder: Path = DEMO) -> DemoContract:
    base = _base(folder)
    return build_contract(base.sha256, FileTokenizer(base.path), Adapter.open(folder).manifest.infill_order)


def _contract() -> DemoContract:
    return DemoContract.model_validate_json((DEMO / CONTRACT).read_text(encoding="utf-8"))


def test_the_adapter_is_complete_and_small() -> None:
    adapter = Adapter.open(DEMO)

    assert adapter.weights.stat().st_size <= 8_000_000
    assert adapter.manifest.base_model.name in WHEEL_BASES, "it needs no Hub"
    assert not adapter.manifest.train_file.is_absolute()
    assert not adapter.manifest.base_model.path.is_absolute()


def test_the_adapter_was_made_for_this_language() -> None:
    assert _contract().language_sha256 == grammar_fingerprint(), f"the grammar has changed: {REMAKE}"


@pytest.mark.parametrize(
    ("field", "name"), [("base_sha256", "base"), ("prompt_sha256", "prompt"), ("language_sha256", "language")]
)
def test_a_stale_adapter_is_refused(field: str, name: str) -> None:
    with pytest.raises(RefusedError, match=f"made for a different {name} than this code uses") as refused:
        refuse_stale(DEMO, _contract().model_copy(update={field: "0" * 64}))

    assert REMAKE in str(refused.value)


def test_lines_and_columns_count_from_one() -> None:
    (unknown, broken) = (judge(task(), completion(text)) for text in ("fn add() to int { return c }", BROKEN))

    assert "1:26: unknown-name: " in describe_score(unknown)
    assert "does not parse: 2:15: expected-expression: " in describe_score(broken)


def test_the_tasks_are_five_prompts_and_five_lines() -> None:
    pairs = [*read_pairs(DEMO / TASKS)]

    assert [pair.infill is not None for pair in pairs] == [False] * 5 + [True] * 5
    for pair in pairs:
        whole = pair.response if pair.infill is None else pair.prompt + pair.response + pair.infill.suffix
        assert analyze(whole).ok


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_each_prompt_and_each_line_is_completed(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(trained, tmp_path / "tiny")
    (folder / CONTRACT).write_text(_build_contract(folder).model_dump_json())
    write_jsonl(folder / TASKS, [*read_pairs(DEMO / TASKS)][::5])
    monkeypatch.setattr("mens_pipeline.cli.demo.DEMO", folder)
    monkeypatch.setattr("mens_pipeline.cli.demo._TOKENS", 16)
    done = run_main("demo", folder=tmp_path, variables={"MENS_CACHE_ROOT": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("   -> ") == 2
    assert "0 of 2 are correct" in done.stdout
    assert "mens serve --run-dir tiny " in done.stdout


@pytest.mark.slow
def test_the_adapter_was_made_for_its_base_and_this_prompt() -> None:
    refuse_stale(DEMO, _build_contract())


@pytest.mark.nightly
def test_the_demo_needs_no_network(tmp_path: Path, offline: list[str]) -> None:
    if not offline:
        pytest.skip("this machine allows no network namespaces")
    command = [*offline, sys.executable, "-m", "mens_pipeline.cli", "demo"]
    environment = {**os.environ, "MENS_STORE_ROOT": str(tmp_path), "MENS_CACHE_ROOT": str(load_settings().cache_root)}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("   -> ") == 10
    assert done.stdout.count("parses, tests 3/3") >= 1
    assert "mens serve --run-dir" in done.stdout
    assert "mens run" in done.stdout


@pytest.mark.slow
def test_the_adapter_was_trained_on_the_base_of_the_wheels() -> None:
    base = _base()
    if base.origin != "wheel":
        pytest.skip("the base came from the Hub")

    assert digest_of_folder(base.path) == base.sha256 == _contract().base_sha256
