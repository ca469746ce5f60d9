"""The bundle and the checks for a GPU machine, tested as far as possible without one."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.gpu import bundle, check, serving, smoke, training
from mens_pipeline_tests.jobs.processes import is_gone
from mens_pipeline_tests.serving.talkative import write_infill_run, write_run, write_talkative
from mens_pipeline_tests.training.runs import pairs


def _wheel(folder: Path, name: str, *files: str) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for file in (*files, f"{name}.dist-info/METADATA"):
            wheel.writestr(file, name)
    return folder / f"{name}-py3-none-any.whl"


def test_every_bundled_package_is_pinned() -> None:
    names = [pin.split("==")[0] for pin in bundle.pins()]

    assert len(names) == len(set(names)) > 30
    assert {"einops", "fla-core", "flash-linear-attention"} <= set(names)
    assert not {"torch", "triton", "accelerate", "numpy"} & set(names)


def _find_needs(name: str) -> set[str]:
    """Return the names of packages that an installed one requires; none if it is not installed."""
    try:
        requirements = map(Requirement, importlib.metadata.requires(name) or ())
    except importlib.metadata.PackageNotFoundError:
        return set()
    return {canonicalize_name(one.name) for one in requirements if not one.marker or one.marker.evaluate({"extra": ""})}


def test_every_bundled_package_finds_its_dependencies() -> None:
    """In the bundle, or among the dependencies of packages that the machine brings itself."""
    known: set[str] = {canonicalize_name(name.replace("yaml", "pyyaml")) for name in check.OWN}
    while more := {need for name in known for need in _find_needs(name)} - known:
        known |= more
    taken: set[str] = {canonicalize_name(pin.split("==")[0]) for pin in bundle.pins()}

    assert {(name, need) for name in taken for need in _find_needs(name) - known - taken} == set()


@pytest.mark.slow
def test_pytest_starts_with_the_bundled_plugins() -> None:
    """Options of another plugin in pyproject.toml are an error if it is not installed."""
    plugins = [pin.split("==")[0].replace("-", "_") for pin in bundle.pins() if pin.startswith("pytest-")]
    named = [word for plugin in plugins for word in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *named]
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    file = "mens_pipeline_tests/inference/test_cuda.py"
    done = subprocess.run(
        [*command, file], cwd=PROJECT_ROOT, env=variables, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_libraries_of_another_cuda_are_not_bundled(tmp_path: Path) -> None:
    files = [f"bnb/lib_{name}.so" for name in ("cuda128", "cuda130", "cpu")]
    wheel = _wheel(tmp_path, "bnb-1.0", "bnb/__init__.py", *files)
    bundle.keep_libraries(wheel, ("_cuda130.so", "_cpu.so"))

    assert set(zipfile.ZipFile(wheel).namelist()) == {"bnb/__init__.py", *files[1:], "bnb-1.0.dist-info/METADATA"}
    with pytest.raises(SystemExit, match=r"bnb-1\.0-py3-none-any\.whl: no library _cuda999\.so"):
        bundle.keep_libraries(wheel, ("_cuda999.so",))


@pytest.mark.parametrize("major", [8, 9, 12])
@pytest.mark.parametrize("triton", ["3.3.1", "3.6.0", "3.7.0", "3.7.1"])
def test_kernels_that_raise_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, triton: str, major: int
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: triton)
    _wheel(tmp_path / "wheels", "flash_linear_attention-0.6.0", "fla/layers/__init__.py")
    _wheel(tmp_path / "wheels", "fla_core-0.6.0", "fla/__init__.py")
    _wheel(tmp_path / "wheels", "trl-1.0", "trl/__init__.py")
    target = tmp_path / "site-packages"
    check.unpack(tmp_path / "wheels", target, (major, 0))
    (target / "trl" / "__init__.py").write_text("mine")
    check.unpack(tmp_path / "wheels", target, (major, 0))

    assert (target / "fla").is_dir() == (major != 9 or triton in {"3.3.1", "3.7.1"})
    assert (target / "trl" / "__init__.py").read_text() == "mine"


def test_an_error_says_where_to_get_missing_packages(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="wheels: no packages"):
        check.unpack(tmp_path / "wheels", tmp_path / "site-packages", (0, 0))


def test_the_demonstration_is_not_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle has at most 64 MiB; it contains the rest of the commit."""
    monkeypatch.setattr(bundle, "BUNDLE", PROJECT_ROOT / "mens_pipeline_tests" / "gpu")
    monkeypatch.setattr(bundle, "WHEELS", ".")
    bundle.pack(tmp_path / "bundle.tar")
    with tarfile.open(tmp_path / "bundle.tar") as tar:
        names = tar.getnames()

    assert {"Makefile", "mens_pipeline/cli/demo.py", "config/presets.yaml"} <= set(names)
    assert not [name for name in names if name.startswith("data/demo/")]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_part_runs_existing_modules(device: str) -> None:
    options = check.parse(["--device", device])
    found = {part: list(check.commands(part, options)) for part in check.PARTS}
    modules = [
        word
        for part in found.values()
        for command in part
        for word in command
        if word.startswith("mens_pipeline_tests.")
    ]

    assert all(find_spec(module) for module in modules)
    assert {module.rsplit(".", 1)[-1] for module in modules} >= {"page", *check.PARTS} - {"tests", "bench"}
    assert len([word for word in found["tests"][0] if word.endswith("test_cuda.py")]) == 4
    assert options.parts == ("smoke", "training", "bench", "serving", "tests")


def test_the_caller_chooses_presets_variants_layers_and_tests() -> None:
    arguments = ["--presets", "auto,tiny", "--variants", "ours,kept", "--layers", "32", "--tests", "llama"]
    options = check.parse(arguments)
    words = {part: [word for command in check.commands(part, options) for word in command] for part in check.PARTS}

    assert words["training"][-3:] == ["--presets", "auto", "tiny"]
    assert words["bench"][-3:] == ["--variants", "ours", "kept"]
    assert {word for word in words["training"] if "base-cuda" in word} == {str(PROJECT_ROOT / "build/gpu/base-cuda-32")}
    assert words["serving"][-3].endswith("/tiny")
    assert "llama" in words["tests"]


@pytest.mark.parametrize(
    ("parts", "code_of_smoke", "expected"),
    [
        ([], 0, ["smoke", "training", "bench", "serving", "tests"]),
        ([], 1, ["smoke"]),
        (["training", "bench"], 1, ["training", "bench"]),
    ],
)
def test_a_failed_smoke_ends_the_rest_and_all_parts_share_their_time(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    parts: list[str],
    code_of_smoke: int,
    expected: list[str],
) -> None:
    """A part that hangs takes half of the remaining time, so that the next ones run."""
    ends: list[float] = []

    def run(command: list[str], _variables: dict[str, str], end: float) -> int:
        ends.append(end)
        return code_of_smoke if command[-3:] == ["mens_pipeline_tests.gpu.smoke", "--device", "cuda"] else 0

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(sys, "argv", ["check", *parts, "--seconds", "1000"])
    begin = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        check.main()
    out = capsys.readouterr().out

    assert [line.split()[1].rstrip(",") for line in out.splitlines() if line.startswith("== ")] == expected
    assert ended.value.code == (code_of_smoke if expected == ["smoke"] else 0)
    assert ("not well: smoke, so the rest is left out" in out) == (expected == ["smoke"])
    assert ends[0] - begin == pytest.approx(500, abs=5)
    if len(expected) > 1:
        assert ends[-1] - begin == pytest.approx(1000, abs=5)


@pytest.mark.slow
def test_a_smoke_trains_a_step_in_both_quantizations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["smoke", "--device", "cpu"])
    with pytest.raises(SystemExit) as ended:
        smoke.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if ": " in line]

    assert ended.value.code == 0
    assert lines[0].startswith("missing: ")
    assert [line.split(",")[0] for line in lines if "a step" in line] == ["bf16: a step", "nf4: a step"]


@pytest.mark.nightly
def test_a_part_ends_when_its_time_is_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is interrupted first, so that it writes its results; its child processes end with it."""
    script = tmp_path / "part.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('what it has', flush=True)\n"
    )
    begin = time.monotonic()
    code = check.run([sys.executable, str(script)], {}, begin + 8)  # on a busy machine Python takes seconds to start

    assert code == 1
    assert time.monotonic() - begin < 30
    assert "its time is over\nwhat it has" in capfd.readouterr().out
    assert is_gone(int((tmp_path / "pid").read_text()), 30)
    assert check.run([sys.executable, "-c", "raise SystemExit(3)"], {}, time.monotonic() + 60) == 3


def test_figures_of_a_training_are_those_of_its_log(trained: Path) -> None:
    lines = training.figures("tiny", trained, 9.6)
    estimate = json.loads((trained / "training-preflight.json").read_text())["memory_mb"]["total"]

    assert lines[0] == "tiny: 2 steps, 10 s with loading"
    assert lines[1].endswith(" tokens/s, the median of all steps but the first 2")
    assert lines[2].endswith(f" MB at most, {estimate:.0f} estimated")
    assert len(lines[3].split()) == 3


@pytest.mark.nightly
def test_measures_a_server_at_a_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = write_talkative(tmp_path / "tiny")
    write_jsonl(tmp_path / "heldout.jsonl", pairs(2))
    arguments = ["serving", str(tmp_path / "heldout.jsonl"), str(write_infill_run(tmp_path / "infill", merged))]
    monkeypatch.setattr(sys, "argv", [*arguments, "--device", "cpu"])
    serving.main()
    lines = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "argv", [*arguments[:2], str(write_run(tmp_path / "other", merged)), "--device", "cpu"])

    assert [line.split(":")[0] for line in lines[2::3]] == ["at a cursor", "answers"]
    assert all(line.endswith(" tokens/s") for line in lines[4::3])
    with pytest.raises(SystemExit, match="was not trained for a suffix"):
        serving.main()


@pytest.mark.parametrize("wrong", ["PART=trainning", "DEVICE=gpu"])
def test_rejects_a_wrong_part_before_packing_a_bundle(wrong: str) -> None:
    command = ["make", "--no-print-directory", "-n", "gpu-check", wrong]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    choices = "smoke training bench serving tests generation" if wrong.startswith("PART") else "cuda cpu"
    right = subprocess.run([*command[:-1], "PART=tests bench"], cwd=PROJECT_ROOT, capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{wrong}: choose from {choices}." in done.stderr
    assert set(choices.split()) in (set(check.PARTS), {"cuda", "cpu"})
    assert right.returncode == 0
