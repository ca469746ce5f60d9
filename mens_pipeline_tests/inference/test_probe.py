"""A probe of the speed of a machine."""

from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.probe import SpeedProbe
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.training.runs import prepare_fast


def test_a_probe_trains_and_completes_and_leaves_no_files(tiny_base: Path, tmp_path: Path) -> None:
    run, folder = prepare_fast(tiny_base, tmp_path, is_trial=True), tmp_path / "probe"
    lines: list[str] = []
    rates = SpeedProbe(folder, resolve_device(DeviceChoice.CPU), do_here, lines.append).measure(run)

    assert [line.split(";")[0] for line in lines] == ["measuring 4 steps of training", "measuring 16 completions"]
    assert 0 < rates.train_token < 1
    assert rates.completion(100, 50) > 0
    assert rates.completion(2, 3) == pytest.approx(2 * rates.read_token + 3 * rates.write_token)
    assert not folder.exists()
    assert not run.job.run_dir.exists()


def test_a_failing_probe_says_so_and_leaves_no_files(tiny_base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "probe"
    with pytest.raises(RefusedError, match="the probe process ended with exit code 1"):
        SpeedProbe(folder, resolve_device(DeviceChoice.CPU), lambda _path: 1, print).measure(
            prepare_fast(tiny_base, tmp_path)
        )

    assert not folder.exists()
