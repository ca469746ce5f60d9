"""The base of an adapter that was trained elsewhere: found by its digest, never by its path alone."""

import json
import shutil
from pathlib import Path

import pytest

from mens_pipeline.delivery.merge import refuse_misfit
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import completion_fits, evaluated_model
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import MANIFEST, Adapter, TrainingManifest
from mens_pipeline.models.base import Base, find_recorded_base, look_in
from mens_pipeline.settings import load_settings


def _move(trained: Path, folder: Path) -> Path:
    """A run as another machine left it: its base lay where nothing is here."""
    run = folder / "run"
    shutil.copytree(trained, run)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["base_model"]["path"] = "/srv/another-machine/base"
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def _read_base(trained: Path) -> Base:
    return TrainingManifest.read(trained / MANIFEST).base_model


@pytest.mark.parametrize("place", ["as-i-like", "hub/models--acme--base/snapshots/0123"])
def test_a_run_of_another_machine_is_taken_where_the_base_lies_elsewhere(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Judged, merged and counted with: all find the folder in the cache that the settings name."""
    run, here = _move(trained, tmp_path), tmp_path / "cache" / "base_models" / place
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    load_settings()
    adapter = Adapter.open(run)
    device = resolve_device(DeviceChoice.CPU)
    with pytest.raises(RefusedError, match=r"/srv/another-machine/base: the base model .* of this adapter is gone"):
        evaluated_model("adapter", adapter, device)
    shutil.copytree(_read_base(trained).path, here)

    assert evaluated_model("adapter", adapter, device).base_path == here
    assert completion_fits(adapter.manifest.base_model, Decoding())("fn f() { }")
    refuse_misfit(adapter)


def test_another_base_in_its_place_is_passed_over(trained: Path, tiny_base: Path, tmp_path: Path) -> None:
    """The same path on another machine is no proof; a folder without weights that can be read is none either."""
    cache, base = tmp_path / "base_models", _read_base(trained)
    look_in(cache)
    shutil.copytree(tiny_base, cache / "a")
    shutil.copytree(base.path, cache / "b")
    (cache / "b" / "model.safetensors").write_bytes(b"none")
    with pytest.raises(RefusedError, match="of this adapter is changed"):
        find_recorded_base(base.model_copy(update={"path": tiny_base}))
    shutil.copytree(base.path, cache / "c")

    assert find_recorded_base(base.model_copy(update={"path": tiny_base})) == cache / "c"
    assert find_recorded_base(base) == base.path
