"""From an adapter and some tasks to generation jobs, and to completions that are kept."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import (
    COMPLETIONS,
    Decoding,
    Dtype,
    EvaluatedModel,
    GenerationJob,
    Held,
    Request,
    Syntax,
)
from mens_pipeline.jobs.device import Device, refuse_missing_devices
from mens_pipeline.jobs.environment import num_processors
from mens_pipeline.jobs.local import refuse_failure
from mens_pipeline.jobs.protocol import JOB
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import Base, base_folder, configuration_of, find_recorded_base, read_tokenizer
from mens_pipeline.models.infill import Order
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.preflight import BESIDE_GB, fits_dense
from mens_pipeline.training.prepare import library_versions

_OF_ROOM: Final = 0.5
"""The part of what is free then that keys and values may take: reading prompts, and scores, take some as well."""

_NF4_BYTES: Final = 0.75
"""Of a value of a base in four bits, with embeddings that are not."""

Model = Literal["base", "adapter"]


class GenerationInputs(Strict):
    """All that decides the completions of a model, beside the code."""

    base_sha256: str
    adapter_sha256: str | None
    quantization: tuple[str, bool, Dtype, Held]
    system_prompt: str
    requests: tuple[Request, ...]
    infill_order: Order | None = Field(exclude_if=lambda order: order is None)
    decoding: dict[str, Any]
    computed_on: tuple[str, Dtype]
    libraries: dict[str, str]
    devices: int = Field(exclude_if=lambda devices: devices == 1)


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A generation job that is ready to run; `inputs` holds everything that decides its completions."""

    model: Model
    job: GenerationJob
    job_path: Path
    inputs: GenerationInputs

    @property
    def adapter_sha256(self) -> str:
        """Of the adapter that is evaluated."""
        sha256 = self.inputs.adapter_sha256
        assert sha256 is not None, "a base has none"  # noqa: S101 - our own impossibility
        return sha256


@dataclass(frozen=True, slots=True)
class Conditions:
    """Decoding options, device and lock of a generation.

    Without a number of `devices` it takes as many as the adapter was trained on, where they are there.
    """

    decoding: Decoding
    device: Device
    lock_path: Path
    devices: int | None = None


def prepare_generation(  # noqa: PLR0913 - all that decides the completions
    model: Model,
    adapter: Adapter,
    requests: Iterable[Request],
    conditions: Conditions,
    run_dir: Path,
    *,
    label: str | None = None,
    system_prompt: str | None = None,
) -> PreparedGeneration:
    """Check base and adapter, and write the job with which one of the two completes some requests.

    Its folder is emptied first. Progress calls the model by its label, or else `base` or `adapter`; without a system
    prompt, that of the training precedes each prompt.
    """
    evaluated, base = evaluated_model(model, adapter, conditions.device), adapter.manifest.base_model
    fitting = positions_on(conditions.device, evaluated, base.num_parameters)
    batch_tokens = max(conditions.decoding.batch_tokens, fitting)
    decoding = conditions.decoding.model_copy(update={"batch_tokens": batch_tokens})
    requests = tuple(requests)
    is_at_cursor = any(request.suffix is not None for request in requests)
    infill_order = adapter.manifest.infill_order if is_at_cursor else None
    devices = _devices_of(conditions, adapter.manifest.recipe.devices)
    system_prompt = adapter.manifest.system_prompt if system_prompt is None else system_prompt
    inputs = GenerationInputs(
        base_sha256=base.sha256,
        adapter_sha256=adapter.digest if model == "adapter" else None,
        quantization=(evaluated.quantization, evaluated.double_quant, evaluated.trained_in, evaluated.held),
        system_prompt=system_prompt,
        requests=requests,
        infill_order=infill_order,
        # On a GPU, kernels and so the order of sums depend on how many rows there are together.
        decoding=decoding.model_dump(exclude={"batch_tokens"} if evaluated.device == "cpu" else None),
        computed_on=(evaluated.device, evaluated.compute_dtype),
        libraries=library_versions(),
        devices=1 if evaluated.device == "cpu" else devices,
    )
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    job = GenerationJob(
        **evaluated.model_dump(),
        label=label or model,
        system_prompt=system_prompt,
        decoding=decoding,
        requests=requests,
        infill_order=infill_order,
        devices=devices,
        run_dir=run_dir.resolve(),
        lock_path=conditions.lock_path.resolve(),
    )
    job_path = run_dir.resolve() / JOB
    job_path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return PreparedGeneration(model, job, job_path, inputs)


def _devices_of(conditions: Conditions, trained_on: int) -> int:
    """Return how many processes write, one a device."""
    device, asked = conditions.device, conditions.devices
    if asked is not None:
        refuse_missing_devices(device, asked)
        return asked
    return min(trained_on, num_processors() if device.kind == "cpu" else device.number)


def evaluated_model(model: Model, adapter: Adapter, device: Device) -> EvaluatedModel:
    """Return what to load to generate with a model of a run.

    The adapter answers on the values that it was trained on; the base, where it fits, on its own, as its users run it.
    Refuse (`RefusedError`) a base that is gone or changed, or that was trained on whole and does not fit here.
    """
    manifest, recipe = adapter.manifest, adapter.manifest.recipe
    base, trained_in = manifest.base_model, manifest.result.compute_dtype
    held, compute_dtype = held_on(device, base.num_parameters, trained_in)
    if recipe.quantization == "bf16" and held != "dense":
        found = f"{device.name} has no room for {base.name} in {compute_dtype}, on which the adapter was trained"
        raise RefusedError(f"{found}. Take a larger GPU, or the CPU (--device cpu, VOX_BACKEND=cpu).")
    is_whole = recipe.quantization == "bf16" or (model == "base" and held == "dense")
    return EvaluatedModel(
        base_path=find_recorded_base(base),
        adapter_path=adapter.folder.resolve() if model == "adapter" else None,
        quantization="none" if is_whole else "nf4",
        double_quant=recipe.bnb_4bit_use_double_quant and not is_whole,
        trained_in=trained_in,
        device=device.kind,
        compute_dtype=compute_dtype,
        held=held,
    )


def held_on(device: Device, num_parameters: int, trained_in: Dtype) -> tuple[Held, Dtype]:
    """Return the precisions in which base and adapter are held and computed on a device.

    Dense they are fastest. Where they do not fit so, they are held in four bits.
    """
    compute_dtype = computed_in(device)
    if all(fits_dense(device, num_parameters, dtype) for dtype in (trained_in, compute_dtype)):
        return "dense", compute_dtype
    return "nf4", trained_in


def positions_on(device: Device, evaluated: EvaluatedModel, num_parameters: int) -> int:
    """Return how many positions of the KV cache fit a GPU beside the weights, with room for the rest; 0 elsewhere."""
    if device.kind != "cuda" or device.memory_gb is None:
        return 0
    config = configuration_of(evaluated.base_path)
    text = config.get("text_config", config)
    heads = text["num_attention_heads"]
    width = text.get("head_dim") or text["hidden_size"] // heads
    layers = text.get("layer_types") or ["full_attention"] * text["num_hidden_layers"]
    num_full = sum(not kind.startswith("linear") for kind in layers)
    size = 2 if evaluated.compute_dtype == "bfloat16" else 4
    position = 2 * size * num_full * width * (text.get("num_key_value_heads") or heads)
    weights = num_parameters * (size if evaluated.held == "dense" else _NF4_BYTES) / 2**30
    return max(0, int(_OF_ROOM * (device.memory_gb - weights - BESIDE_GB) * 2**30 / max(1, position)))


def computed_in(device: Device) -> Dtype:
    """Return the dtype that completions are computed in."""
    return "bfloat16" if device.kind == "cuda" and device.has_bfloat16 else "float32"


def generate_all(
    asked: Mapping[str, PreparedGeneration], store: ArtifactStore, launch: Callable[[PreparedGeneration], int]
) -> dict[str, Artifact]:
    """Run several generations as `generate_once` does; those of the same model share a process."""
    waiting = {
        name: prepared
        for name, prepared in asked.items()
        if _stage(prepared).find(store, GenerationParams(prepared=prepared, launch=launch)) is None
    }
    artifacts = {}
    for name, prepared in asked.items():
        together = _with(prepared, waiting.values()) if name in waiting else prepared
        artifacts[name], _ = generate_once(together, store, launch)
        waiting.pop(name, None)
    return artifacts


def _with(prepared: PreparedGeneration, others: Iterable[PreparedGeneration]) -> PreparedGeneration:
    """Return a generation whose process does others of its model next that have no completions yet."""
    job = prepared.job
    same = [other for other in others if other.job.evaluated == job.evaluated and other is not prepared]
    left = tuple(other.job_path for other in same if not (other.job.run_dir / COMPLETIONS).is_file())
    job = job.model_copy(update={"then": left})
    prepared.job_path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return replace(prepared, job=job)


class GenerationParams(Params):
    """A prepared generation, and the process that does it."""

    prepared: Annotated[PreparedGeneration, DecidedBy(attrgetter("inputs"))]
    launch: Helper[Callable[[PreparedGeneration], int]]


def write_generations(folder: Path, params: GenerationParams) -> dict[str, Any]:
    """Generate the completions of a model into `completions.jsonl`."""
    job = params.prepared.job
    if not (job.run_dir / COMPLETIONS).is_file():  # where another generation of the same model did not do it as well
        refuse_failure(job.run_dir, params.launch(params.prepared), "generation")
    shutil.copy2(job.run_dir / COMPLETIONS, folder / COMPLETIONS)
    return {"model": job.label, "num_requests": len(job.requests)}


STAGE: Final = Stage(Kind.GENERATIONS, ("mens_pipeline.inference.generate",), write_generations)
_FREE: Final = Stage(Kind.GENERATIONS, STAGE.entries, write_generations, ("mens_pipeline.language",))
"""Free decoding: a change of the language makes nothing again."""
_UNNAMED: Final = Stage(Kind.GENERATIONS, STAGE.entries, write_generations, ("mens_pipeline.language.semantics",))
"""Constrained decoding without names and types: a change of these makes nothing again."""


def generate_once(
    prepared: PreparedGeneration, store: ArtifactStore, launch: Callable[[PreparedGeneration], int]
) -> tuple[Artifact, bool]:
    """Generate the completions of a model, unless the very same were generated before and are unchanged.

    Returns:
        The completions, and whether they were reused.

    Raises:
        RefusedError: The process did not come to its end; the message says why.
    """
    adapter = prepared.job.adapter_path
    # By the digest of its weights: an adapter in any folder, trained again or promoted, gives the same completions.
    origins = store.holding(adapter) if adapter is not None else ()
    params = GenerationParams(prepared=prepared, launch=launch, origins=origins)
    completions, reused = _stage(prepared).build(store, params)
    shutil.rmtree(prepared.job.run_dir, ignore_errors=True)
    return completions, reused


def _stage(prepared: PreparedGeneration) -> Stage[GenerationParams]:
    decoding = prepared.job.decoding
    return _FREE if decoding.syntax is Syntax.FREE else STAGE if decoding.names else _UNNAMED


def completion_fits(base: Base, decoding: Decoding) -> Callable[[str], bool]:
    """Return a test whether a text, with the end of its turn, is short enough for a completion."""
    path = base_folder(base) / "tokenizer.json"
    if not path.is_file():
        raise RefusedError(f"{path}: the base model of this adapter is gone. Restore it, or train again.")
    tokenizer = read_tokenizer(path)
    return lambda text: len(tokenizer.encode(text.rstrip("\n")).ids) < decoding.max_new_tokens
