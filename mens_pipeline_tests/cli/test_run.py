"""`mens run`: the whole graph without a server."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.evaluation.benches import task, write_bench

_COMMAND = [sys.executable, "-m", "mens_pipeline.cli", "run"]


def _places(home: Path) -> dict[str, str]:
    return {"DAGSTER_HOME": str(home), "MENS_STORE_ROOT": f"{home}-store"}


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, **_places(home)}


def _run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*_COMMAND, "--no-train", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(home))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Dagster home of this test."""
    return tmp_path / "home"


@pytest.mark.slow
def test_seed_data_passes_and_is_counted(seed_run: Path) -> None:
    stdout, stderr = ((seed_run / name).read_text() for name in ("stdout", "stderr"))

    assert (seed_run / "exit_code").read_text() == "0", stderr
    assert "passed   workspace_snapshot/source_parse_rate" in stdout
    assert "distinct pairs" in stdout
    assert "start: workspace_snapshot" in stderr
    assert "done: extracted_corpus" in stderr
    assert stdout.count(f"{sys.executable} -m mens_pipeline.cli run trains the adapter") == 1
    assert (seed_run / "home" / "dagster.yaml").is_symlink()


def test_a_broken_workspace_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "bad.vox").write_text("fn f(")
    arguments = ("run", "--no-train", "--source-root", "workspace", "--json")
    result = run_main(*arguments, folder=tmp_path, variables=_places(home))
    outcome = json.loads(result.stdout)

    assert result.returncode == 1
    assert outcome["success"] is False
    assert outcome["checks"][0]["figures"]["golden_accepted"] == "0/1 (0.0 %)"


_SUM = "fn total(prices: list[int]) to int {\n    let mut sum = 0\n    for price in prices { sum = sum + price }\n}\n"
_FILES = {
    "broken.vox": "fn half(n: int) to int {\n    return ) n\n}\n",
    "crlf.vox": "fn smaller(a: int, b: int) to int {\r\n    if a < b { return a }\r\n    return b\r\n}\r\n",
    "keys.vox": f'fn key() to str {{ return "{"AKIA" + "QYLPMN5HHHFPZAM2"}" }}\n',
    "names.vox": "fn discount(price: int) to int {\n    let share = price / 10\n    return price - shrae\n}\n",
    "total.vox": _SUM,
    "total_copy.vox": _SUM,
    "build/made.vox": "fn made() to int { return 1 }\n",
    "page.md": "# Without consent\n",
    **{
        f"add_{n}.vox": f"fn add_{n}(a: int) to int {{\n    let b = a * {n}\n    return b + {n}\n}}\n"
        for n in range(2, 5)
    },
}


@pytest.mark.slow
def test_the_summary_accounts_for_user_files(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in _FILES.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    config = shutil.copytree(PROJECT_ROOT / "config", tmp_path / "config")
    limits = ("  limit: 60", "  num_family_tasks: 2")
    for name, key in (("gates.yaml", "min_corpus_coverage: 0.0"), *(("pipeline.yaml", limit) for limit in limits)):
        text = (config / name).read_text(encoding="utf-8")
        (config / name).write_text(re.sub(rf"^{key.partition(':')[0]}: .*", key, text, count=1, flags=re.MULTILINE))
    monkeypatch.setenv("MENS_CONFIG_ROOT", str(config))
    monkeypatch.setenv("VOX_BENCHMARK_DIR", str(write_bench(tmp_path / "bench", task())))
    monkeypatch.setenv("MENS_NUM_WORKERS", "1")
    done = _run(home, "--source-root", tmp_path / "shop")
    stdout, refusal = done.stdout, "the gate will refuse (policy ci): "
    found = re.search(r"^yours +(.+)\n +(.+)\n +(.+)\n +(.+)\nreasons +(.+)", stdout, re.MULTILINE)
    assert found is not None, stdout
    counts = [int(number) for number in re.findall(r"(\d+) (?:pairs|train|held out|[a-z]+_[a-z]+)", found[3])]

    assert found[1] == (
        "10 vox files: 8 read, 1 rejected (broken.vox:2 expected-expression), 1 ignored (build/made.vox:1); "
        "1 page: 0 read, 1 not_opted_in (page.md:1); 1 access_token redacted (keys.vox)"
    )
    unknown = "kept with 2 semantic_error (names.vox unknown-name, total.vox missing-return)"
    assert found[2] == f"8 records: 7 valid, 1 near_duplicate (total_copy.vox); {unknown}"
    assert counts[0] == 7 == sum(counts[1:]), found[3]
    assert re.search(r" train, \d held out \(\w+\.vox", found[3])
    assert found[4].startswith(f"mixed: {counts[1]} pairs, 60 synthetic, ")
    assert Path(found[5]).is_file()
    assert "passed   mixed_train_set/shares_as_asked" in stdout, "all existing rows train"
    assert re.search(
        rf"^eval suite  {re.escape(refusal)}\d held-out prompts from \d files, required", stdout, re.MULTILINE
    )
    assert f"heldout_split: {refusal}" in done.stderr


@pytest.mark.nightly
def test_an_empty_workspace_is_refused(home: Path, tmp_path: Path) -> None:
    result = _run(home, "--source-root", tmp_path)

    assert result.returncode == 1
    assert "golden_accepted: 0/0" in result.stdout
    assert "Does MENS_SOURCE_ROOT, or --source-root, name the workspace?" in result.stdout
    assert "next        fix the failure" in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if " of train_set failed)" in line]
    assert "golden_accepted 0/0" in line


@pytest.fixture
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline.cli.run.show_progress", lambda _name: None)


@pytest.mark.usefixtures("_no_progress")
def test_an_unusable_home_is_misuse(tmp_path: Path) -> None:
    """Its configuration is invalid, or a file is in its place."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "dagster.yaml").write_text("storage: {nonsense: {}}\n")
    (tmp_path / "file").touch()
    for home in (tmp_path / "folder", tmp_path / "file"):
        result = run_main("run", "--no-train", folder=tmp_path, variables=_places(home))

        assert result.returncode == 2
        assert str(home) in result.stderr


def test_a_workspace_that_is_not_a_folder_is_misuse(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, found in (("nowhere", "no such folder"), ("file", "not a folder")):
        result = run_main("run", "--source-root", tmp_path / name, folder=tmp_path, variables=_places(home))

        assert result.returncode == 2
        assert f"{found}. Name a Vox workspace with --source-root" in result.stderr


@pytest.mark.usefixtures("_no_progress")
@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--preset", "cpu_dem"), {}, "preset cpu_dem: not in config/presets.yaml. Did you mean `cpu_demo`?"),
        (("--recipe", "tny", "--no-train"), {}, "recipe tny: not in config/recipes.yaml. Did you mean `tiny`?"),
        ((), {"MENS_CACHE_ROOT": __file__}, "MENS_CACHE_ROOT: not a folder. Correct"),
        ((), {"VOX_EVAL_POLICY": "typo"}, "policy typo: not in config/gates.yaml"),
        ((), {"MENS_TRAIN_LORA_R": "0"}, "lora_r: Input should be greater than or equal to 1 (environment)"),
    ],
)
def test_a_wrong_setting_is_misuse(
    home: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = run_main("run", *arguments, folder=home.parent, variables=_places(home) | environment)

    assert done.returncode == 2
    assert message in done.stderr
    assert not home.exists()


@pytest.mark.slow
def test_an_interrupted_run_is_canceled(home: Path) -> None:
    process = subprocess.Popen(
        [*_COMMAND, "--no-train"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(home),
        start_new_session=True,
    )
    assert process.stderr is not None
    assert any("start: extracted_corpus" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stdout, stderr = process.communicate(timeout=120)
    with open_instance(home) as instance:
        (run,) = instance.get_runs()

    assert process.returncode == 130
    assert "interrupted: " in stderr
    assert "interrupted; run the same command again" in stderr
    assert "Traceback" not in stderr
    assert "DagsterExecutionInterruptedError" not in stderr
    assert stdout == ""
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert run.tags.get("dagster/will_retry") != "true"
