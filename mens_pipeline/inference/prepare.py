"""Prepare generations from an adapter and requests, and build their completions in the store."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from uuid import uuid4

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import (
    COMPLETIONS,
    Decoding,
    Dtype,
    EvaluatedModel,
    Generation,
    GenerationJob,
    Held,
    Request,
    Syntax,
)
from mens_pipeline.jobs.device import Device, refuse_missing_devices
from mens_pipeline.jobs.environment import num_processors
from mens_pipeline.jobs.protocol import refuse_failure, write_job
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import Base, base_folder, configuration_of, find_recorded_base, read_tokenizer
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.preflight import BESIDE_GB, fits_dense, library_versions

_CACHE_SHARE: Final = 0.5
"""Share of the free memory for keys and values; reading prompts and scores need the rest."""

_NF4_BYTES: Final = 0.75
"""Mean bytes per value of a base in four bits, including its embeddings, which are not quantised."""

Model = Literal["base", "adapter"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Decoding options, device and lock of generations.

    If `devices` is None, a generation uses as many as its adapter was trained on, or fewer if this machine has fewer.
    """

    decoding: Decoding
    device: Device
    lock_path: Path
    devices: int | None = None


def prepare_generation(  # noqa: PLR0913 - everything that decides the completions
    model: Model,
    adapter: Adapter,
    requests: Iterable[Request],
    conditions: Conditions,
    *,
    label: str | None = None,
    system_prompt: str | None = None,
) -> Generation:
    """Check base and adapter, and return a generation in which one of them completes the requests.

    `label` names the model in progress lines, by default `model`; `system_prompt` defaults to the one from training.
    """
    evaluated, base = evaluated_model(model, adapter, conditions.device), adapter.manifest.base_model
    fitting = positions_on(conditions.device, evaluated, base.num_parameters)
    batch_tokens = max(conditions.decoding.batch_tokens, fitting)
    requests = tuple(requests)
    is_at_cursor = any(request.suffix is not None for request in requests)
    return Generation(
        **evaluated.model_dump(),
        base_sha256=base.sha256,
        adapter_sha256=adapter.digest if model == "adapter" else None,
        label=label or model,
        system_prompt=adapter.manifest.system_prompt if system_prompt is None else system_prompt,
        requests=requests,
        decoding=conditions.decoding.model_copy(update={"batch_tokens": batch_tokens}),
        infill_order=adapter.manifest.infill_order if is_at_cursor else None,
        devices=_count_devices(conditions, adapter.manifest.recipe.devices),
    )


def _count_devices(conditions: Conditions, trained_on: int) -> int:
    device, asked = conditions.device, conditions.devices
    if asked is not None:
        refuse_missing_devices(device, asked)
        return asked
    return min(trained_on, num_processors() if device.kind == "cpu" else device.number)


def evaluated_model(model: Model, adapter: Adapter, device: Device) -> EvaluatedModel:
    """Return the model to load: the adapter on its weights from training, or the base on its own weights if they fit.

    `RefusedError` if the base is gone or changed, or the adapter needs its whole weights and they do not fit here.
    """
    manifest, recipe = adapter.manifest, adapter.manifest.recipe
    base, trained_in = manifest.base_model, manifest.result.dtype
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
        in_eight_bits=is_in_eight_bits(device, recipe.bnb_4bit_compute_dtype),
        held=held,
    )


def is_in_eight_bits(device: Device, asked: str = "auto") -> bool:
    """Return whether a device is a CPU with fast products in eight bits, and the recipe does not request float32."""
    return device.has_int8 and asked != "float32"


def held_on(device: Device, num_parameters: int, trained_in: Dtype) -> tuple[Held, Dtype]:
    """Return how a device holds a model, dense (the fastest way) or in four bits, and the dtype it computes in."""
    compute_dtype = computed_in(device)
    if all(fits_dense(device, num_parameters, dtype) for dtype in (trained_in, compute_dtype)):
        return "dense", compute_dtype
    return "nf4", trained_in


def positions_on(device: Device, evaluated: EvaluatedModel, num_parameters: int) -> int:
    """Return how many positions of the KV cache fit a GPU besides the weights; 0 on other devices."""
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
    return max(0, int(_CACHE_SHARE * (device.memory_gb - weights - BESIDE_GB) * 2**30 / max(1, position)))


def computed_in(device: Device) -> Dtype:
    """Return bfloat16 on a GPU that computes in it natively, else float32."""
    return "bfloat16" if device.kind == "cuda" and device.has_bfloat16 else "float32"


def list_inputs(generation: Generation) -> dict[str, Any]:
    """Return everything that decides the completions except the code, in JSON types."""
    values = generation.model_dump(mode="json", exclude={"base_path", "adapter_path", "label"})
    if generation.device == "cpu":
        # On a GPU, kernels and therefore the order of sums depend on the number of rows in a batch.
        del values["devices"], values["decoding"]["batch_tokens"]
    return {**values, "libraries": library_versions()}


def _parser_version(decoding: Decoding) -> str | None:
    """Hash the parser code that constrains completions, without the checks of names and types."""
    if decoding.syntax is Syntax.FREE:
        return None
    return code_version("mens_pipeline.inference.constraint", without=("mens_pipeline.language.semantics",))


class GenerationParams(Params):
    """A generation, the version of the parser that constrains it, and a function that returns its completions file."""

    generation: Annotated[Generation, DecidedBy(list_inputs)]
    parser: str | None
    complete: Helper[Callable[[], Path]]


def write_generations(folder: Path, params: GenerationParams) -> dict[str, Any]:
    """Write the completions of a model into `completions.jsonl`."""
    shutil.copy2(params.complete(), folder / COMPLETIONS)
    return {"model": params.generation.label, "num_requests": len(params.generation.requests)}


STAGE: Final = Stage(
    Kind.GENERATIONS, ("mens_pipeline.inference.generate",), write_generations, without=("mens_pipeline.language",)
)


def generate_all(
    asked: Mapping[str, Generation],
    store: ArtifactStore,
    launch: Callable[[GenerationJob], int],
    lock_path: Path,
) -> dict[str, Artifact]:
    """Return the completions of each generation by name, generating those that the store lacks.

    Generations of the same model share a process. `launch` runs the process of a job, which holds `lock_path`, and
    returns its exit code. `RefusedError` if a process failed.
    """
    jobs: dict[str, GenerationJob] = {}

    def complete(name: str) -> Path:
        if name not in jobs:
            placement = asked[name].placement
            absent = (other for other in asked if other == name or STAGE.find(store, params[other]) is None)
            together = {other: asked[other] for other in absent if asked[other].placement == placement}
            run_dir = store.root.resolve() / Kind.GENERATIONS / f".work-{uuid4().hex}"
            job = GenerationJob(generations=together, run_dir=run_dir, lock_path=lock_path.resolve())
            write_job(job)
            refuse_failure(run_dir, launch(job), "generation")
            jobs.update(dict.fromkeys(together, job))
        return jobs[name].completions(name)

    params = {
        name: GenerationParams(
            generation=generation,
            parser=_parser_version(generation.decoding),
            complete=partial(complete, name),
            # Not part of the key: the digest of the weights decides, whichever folder holds the adapter.
            origins=store.holding(generation.adapter_path) if generation.adapter_path is not None else (),
        )
        for name, generation in asked.items()
    }
    artifacts = {name: STAGE.build(store, some)[0] for name, some in params.items()}
    for job in jobs.values():
        shutil.rmtree(job.run_dir, ignore_errors=True)
    return artifacts


def completion_fits(base: Base, decoding: Decoding) -> Callable[[str], bool]:
    """Return a function that checks whether a text and the end of its turn fit into a completion."""
    path = base_folder(base) / "tokenizer.json"
    if not path.is_file():
        raise RefusedError(f"{path}: the base model of this adapter is gone. Restore it, or train again.")
    tokenizer = read_tokenizer(path)
    return lambda text: len(tokenizer.encode(text.rstrip("\n")).ids) < decoding.max_new_tokens
