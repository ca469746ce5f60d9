"""What kept answers are found by: on a GPU also how many are written at once."""

import json
from pathlib import Path

import pytest

from mens_pipeline.inference.generation import Decoding, Request
from mens_pipeline.inference.prepare import WEIGHTS, Asked, Conditions, prepare_requests
from mens_pipeline.training.base_model import digest_of_folder
from mens_pipeline.training.devices import Device
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base, write_folder

_CPU = Device("cpu", "cores", None, has_bfloat16=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was never trained, with all that is looked at."""
    folder = tmp_path / "run"
    (folder / ADAPTER).mkdir(parents=True)
    (folder / ADAPTER / WEIGHTS).write_bytes(b"weights")
    base = write_folder(tmp_path / "base")
    manifest = manifest_about(described_base(base, sha256=digest_of_folder(base)))
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def _prepared(run: Path, device: Device, batch_tokens: int) -> tuple[object, int]:
    asked = Asked((Request(task="t", prompt="Write."),))
    conditions = Conditions(Decoding(batch_tokens=batch_tokens), device, run / "lock")
    prepared = prepare_requests("base", run, asked, conditions, run / "work")
    return prepared.inputs, prepared.job.decoding.batch_tokens


def test_how_many_are_written_at_once_changes_answers_on_a_card_alone(run: Path) -> None:
    """There the order of sums depends on it; on a CPU the answers that are kept stay."""
    card = Device("cuda", "a GPU", 3.0, has_bfloat16=True)
    full = Device("cuda", "a GPU", 2.0, has_bfloat16=True)

    assert _prepared(run, _CPU, 256)[0] == _prepared(run, _CPU, 512)[0]
    assert _prepared(run, full, 256)[0] != _prepared(run, full, 512)[0]
    assert _prepared(run, _CPU, 256)[0] != _prepared(run, full, 256)[0]
    assert _prepared(run, card, 256)[0] != _prepared(run, full, 256)[0]


def test_a_card_with_room_holds_more_at_once(run: Path) -> None:
    """Half of what is free beside weights and context, in keys and values of two layers of four heads, two wide."""
    card = Device("cuda", "a GPU", 3.0, has_bfloat16=True)
    position = 2 * 2 * 2 * 4 * 2

    assert _prepared(run, _CPU, 512)[1] == 512
    assert _prepared(run, Device("cuda", "a GPU", 2.0, has_bfloat16=True), 512)[1] == 512
    assert _prepared(run, card, 512)[1] == pytest.approx(2**30 / 2 / position, rel=1e-3)
