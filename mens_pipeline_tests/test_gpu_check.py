"""What a GPU machine is given and asked, as far as that can be told without one."""

import importlib.metadata
import json
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.gpu import bundle, check, serving, training
from mens_pipeline_tests.serving.talkative import write_run, write_talkative, write_taught_run
from mens_pipeline_tests.training.runs import pairs


def _wheel(folder: Path, name: str, *files: str) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        for file in (*files, f"{name}.dist-info/METADATA"):
            wheel.writestr(file, name)
    return folder / f"{name}-py3-none-any.whl"


def test_all_that_is_taken_along_is_pinned() -> None:
    names = [pin.split("==")[0] for pin in bundle.pins()]

    assert len(names) == len(set(names)) > 30
    assert {"einops", "fla-core", "flash-linear-attention"} <= set(names)
    assert not {"torch", "triton", "accelerate", "numpy"} & set(names)


@pytest.mark.skipif(not (PROJECT_ROOT / ".git").exists(), reason="no checkout")
def test_the_demo_stays_at_home(tmp_path: Path) -> None:
    """It takes 7 of 64 MiB; all else of the commit is packed."""
    bundle.archive_commit(tmp_path / "commit.tar")
    with tarfile.open(tmp_path / "commit.tar") as tar:
        names = [Path(name) for name in tar.getnames()]
    folders = {name.parts[1] for name in names if name.parts[0] == "data" and len(name.parts) > 1}

    assert "demo" not in folders
    assert "golden" in folders
    assert Path("mens_pipeline_tests", "gpu", "check.py") in names


def test_libraries_of_another_cuda_stay_at_home(tmp_path: Path) -> None:
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


def test_a_machine_without_packages_is_told_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="wheels: no packages"):
        check.unpack(tmp_path / "wheels", tmp_path / "site-packages", (0, 0))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_part_runs_modules_that_there_are(device: str) -> None:
    found = [list(check.commands(part, device)) for part in ("tests", "training", "generation", "serving", "bench")]
    modules = [
        word for part in found for command in part for word in command if word.startswith("mens_pipeline_tests.")
    ]

    assert all(find_spec(module) for module in modules)
    assert {module.rsplit(".", 1)[-1] for module in modules} >= {"page", "training", "generation", "serving"}
    assert len([word for word in found[0][0] if word.endswith("test_cuda.py")]) == 4


@pytest.mark.nightly
def test_a_part_ends_when_its_time_is_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Interrupted first, so that it writes what it has; its own processes end with it."""
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
    while _is_alive((tmp_path / "pid").read_text()):  # the system takes a moment
        assert time.monotonic() - begin < 30
    assert check.run([sys.executable, "-c", "raise SystemExit(3)"], {}, time.monotonic() + 60) == 3


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_figures_of_a_training_are_those_of_its_log(trained: Path) -> None:
    lines = training.figures("tiny", trained, 9.6)
    estimate = json.loads((trained / "training-preflight.json").read_text())["memory_mb"]["total"]

    assert lines[0] == "tiny: 2 steps, 10 s with loading"
    assert lines[1].endswith(" tokens/s, the median of all steps but the first 2")
    assert lines[2].endswith(f" MB at most, {estimate:.0f} estimated")
    assert len(lines[3].split()) == 3


@pytest.mark.nightly
def test_a_server_is_asked_at_a_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = write_talkative(tmp_path / "tiny")
    write_jsonl(tmp_path / "heldout.jsonl", pairs(2))
    arguments = ["serving", str(tmp_path / "heldout.jsonl"), str(write_taught_run(tmp_path / "taught", merged))]
    monkeypatch.setattr(sys, "argv", [*arguments, "--device", "cpu"])
    serving.main()
    lines = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "argv", [*arguments[:2], str(write_run(tmp_path / "other", merged)), "--device", "cpu"])

    assert [line.split(":")[0] for line in lines[2::3]] == ["at a cursor", "answers"]
    assert all(line.endswith(" tokens/s") for line in lines[4::3])
    with pytest.raises(SystemExit, match="was not trained for a suffix"):
        serving.main()


@pytest.mark.parametrize("wrong", ["PART=trainning", "DEVICE=gpu"])
def test_a_wrong_part_is_refused_before_a_bundle_is_packed(wrong: str) -> None:
    command = ["make", "--no-print-directory", "-n", "gpu-check", wrong]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    choices = "tests training generation serving bench" if wrong.startswith("PART") else "cuda cpu"
    right = subprocess.run([*command[:-1], "PART=tests bench"], cwd=PROJECT_ROOT, capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{wrong}: choose of {choices}." in done.stderr
    assert set(choices.split()) in (set(check.PARTS), {"cuda", "cpu"})
    assert right.returncode == 0
