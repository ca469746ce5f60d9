"""Keys of stored completions, and one process for all completions of a model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from mens_pipeline.inference.generation import COMPLETIONS, Completion, Decoding, Generation, GenerationJob, Request
from mens_pipeline.inference.prepare import (
    Conditions,
    Model,
    evaluated_model,
    generate_all,
    list_inputs,
    prepare_generation,
)
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS, Adapter
from mens_pipeline.models.base import digest_of_folder
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base, write_folder

_CPU = Device("cpu", "cores", None, has_bfloat16=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was never trained, with all files that are read."""
    folder = tmp_path / "run"
    (folder / ADAPTER).mkdir(parents=True)
    (folder / ADAPTER / WEIGHTS).write_bytes(b"weights")
    base = write_folder(tmp_path / "base")
    manifest = manifest_about(described_base(base, sha256=digest_of_folder(base)))
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def _prepare(run: Path, device: Device, batch_tokens: int) -> tuple[object, int]:
    requested = [Request(task="t", prompt="Write.")]
    conditions = Conditions(Decoding(batch_tokens=batch_tokens), device, run / "lock")
    generation = prepare_generation("base", Adapter.open(run), requested, conditions)
    return list_inputs(generation), generation.decoding.batch_tokens


def test_the_batch_size_changes_the_key_only_on_a_gpu(run: Path) -> None:
    gpu = Device("cuda", "a GPU", 3.0, has_bfloat16=True)
    full = Device("cuda", "a GPU", 2.0, has_bfloat16=True)

    assert _prepare(run, _CPU, 256)[0] == _prepare(run, _CPU, 512)[0]
    assert _prepare(run, full, 256)[0] != _prepare(run, full, 512)[0]
    assert _prepare(run, _CPU, 256)[0] != _prepare(run, full, 256)[0]
    assert _prepare(run, gpu, 256)[0] != _prepare(run, full, 256)[0]


@pytest.mark.parametrize("requested", ["auto", "int8", "float32"])
def test_a_cpu_rounds_to_eight_bits_if_that_is_faster_and_allowed(run: Path, requested: str) -> None:
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["recipe"]["bnb_4bit_compute_dtype"] = requested
    (run / MANIFEST).write_text(json.dumps(manifest))
    fast = replace(_CPU, has_int8=True)
    is_expected = requested != "float32"

    assert evaluated_model("adapter", Adapter.open(run), fast).in_eight_bits is is_expected
    assert not evaluated_model("adapter", Adapter.open(run), _CPU).in_eight_bits
    assert (_prepare(run, fast, 256)[0] != _prepare(run, _CPU, 256)[0]) is is_expected


def test_requests_at_a_cursor_have_the_order_of_the_training(run: Path) -> None:
    conditions = Conditions(Decoding(), _CPU, run / "lock")
    inputs, generations = [], []
    for order in ({}, {"infill_order": "suffix_first"}, {"infill_order": "prefix_first"}):
        manifest = json.loads((run / MANIFEST).read_text())
        (run / MANIFEST).write_text(json.dumps({**manifest, **order}))
        for suffix in ("}", None):
            requested = [Request(task="t", prompt="fn f() {", suffix=suffix, window=64)]
            generation = prepare_generation("adapter", Adapter.open(run), requested, conditions)
            expected = order.get("infill_order", "suffix_first") if suffix is not None else None
            assert generation.infill_order == expected
            generations.append(generation)
            inputs.append(list_inputs(generation))

    assert inputs[0] == inputs[2] != inputs[4]
    assert inputs[1] == inputs[3] == inputs[5]
    incomplete = generations[-1].model_dump() | {"requests": (Request(task="t", prompt="", suffix="}", window=64),)}
    with pytest.raises(ValidationError, match="infill_order does not say which side"):
        Generation.model_validate(incomplete)


def test_a_gpu_with_free_memory_has_a_larger_batch(run: Path) -> None:
    """Half of the memory besides weights and context, in keys and values of two layers with four heads of width two."""
    gpu = Device("cuda", "a GPU", 3.0, has_bfloat16=True)
    position = 2 * 2 * 2 * 4 * 2

    assert _prepare(run, _CPU, 512)[1] == 512
    assert _prepare(run, Device("cuda", "a GPU", 2.0, has_bfloat16=True), 512)[1] == 512
    assert _prepare(run, gpu, 512)[1] == pytest.approx(2**30 / 2 / position, rel=1e-3)


def test_one_process_handles_all_requests_of_a_model(run: Path, tmp_path: Path) -> None:
    store, conditions = ArtifactStore(tmp_path / "store"), Conditions(Decoding(), _CPU, run / "lock")
    launched: list[list[str]] = []

    def ask(model: Model, name: str) -> Generation:
        return prepare_generation(model, Adapter.open(run), [Request(task=name, prompt="Write.")], conditions)

    def launch(job: GenerationJob) -> int:
        assert GenerationJob.model_validate_json(job.path.read_text()) == job
        launched.append([*job.generations])
        for name in job.generations:
            completion = Completion(task=name, sample=0, text=name, num_tokens=1, stopped=True)
            write_jsonl(job.completions(name), [completion])
        return 0

    def generate_texts(**models: Model) -> dict[str, str]:
        requested = {name: ask(model, name) for name, model in models.items()}
        artifacts = generate_all(requested, store, launch, tmp_path / "lock")
        return {
            name: next(iter(read_models(one.path / COMPLETIONS, Completion))).text for name, one in artifacts.items()
        }

    assert generate_texts(a="base") == {"a": "a"}
    assert generate_texts(a="base", b="base", c="adapter", d="base") == {name: name for name in "abcd"}
    assert launched == [["a"], ["b", "d"], ["c"]]
    assert not list(store.root.rglob(".work-*"))
