"""From an adapter and some tasks to generation jobs, and to answers that are kept."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

from mens_pipeline.corpus.evolution.requests import Reply
from mens_pipeline.corpus.evolution.requests import Request as Asking
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import (
    ANSWERS,
    Answer,
    Decoding,
    Dtype,
    Engine,
    GenerationJob,
    Held,
    JudgedModel,
    Request,
)
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.jobs.device import Device
from mens_pipeline.jobs.local import refuse_failure
from mens_pipeline.jobs.protocol import JOB
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import Base, base_folder, configuration_of, find_recorded_base
from mens_pipeline.models.chat import read_tokenizer
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.prepare import library_versions

KIND: Final = "generations"
STAGE: Final = Stage(KIND, ("mens_pipeline.inference.generate",), by_content=True)
_FREE: Final = Stage(KIND, STAGE.entries, ("mens_pipeline.language",), by_content=True)
"""Where the language has no say in what a model writes."""
_UNNAMED: Final = Stage(KIND, STAGE.entries, ("mens_pipeline.language.semantics",), by_content=True)
"""Where the grammar has, and names and types have not."""

_BESIDE_GB: Final = 2.0
"""Of a GPU, beside the weights: its context, and keys, values, states and scores of a batch."""

_OF_ROOM: Final = 0.5
"""The part of what is free then that keys and values may take: reading prompts, and scores, take some as well."""

_NF4_BYTES: Final = 0.75
"""Of a value of a base in four bits, with embeddings that are not."""

Model = Literal["base", "adapter"]


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A generation that may begin; its inputs are all that decides the answers, in JSON types."""

    model: Model
    job: GenerationJob
    job_path: Path
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a model answers; without an engine, in our own loop."""

    decoding: Decoding
    device: Device
    lock_path: Path
    engine: Engine | None = None


def prepare_generation(  # noqa: PLR0913 - all that decides the answers
    model: Model,
    adapter: Adapter,
    requests: Iterable[Request],
    conditions: Conditions,
    run_dir: Path,
    *,
    label: str | None = None,
    system_prompt: str | None = None,
) -> PreparedGeneration:
    """Look at base and adapter, and write the job with which one of the two answers some requests.

    The folder in which it works is emptied first. Progress calls the model by its label, or else `base` or `adapter`;
    without a system prompt, that of the training precedes each prompt.

    Raises:
        RefusedError: The base is gone or is another one.
    """
    judged, base = judged_model(model, adapter, conditions.device), adapter.manifest.base_model
    fitting = positions_on(conditions.device, judged, base.num_values)
    batch_tokens = max(conditions.decoding.batch_tokens, fitting)
    decoding = conditions.decoding.model_copy(update={"batch_tokens": batch_tokens})
    requests = tuple(requests)
    system_prompt = adapter.manifest.system_prompt if system_prompt is None else system_prompt
    inputs = {
        "base_sha256": base.sha256,
        "adapter_sha256": adapter.digest if model == "adapter" else None,
        "quantization": [judged.quantization, judged.double_quant, judged.trained_in, judged.held],
        "system_prompt": system_prompt,
        "requests": [request.model_dump(mode="json") for request in requests],
        # On a GPU, kernels and so the order of sums depend on how many rows there are.
        "decoding": decoding.model_dump(exclude={"batch_tokens"} if judged.device == "cpu" else None),
        "computed_on": [judged.device, judged.compute_dtype],
        "libraries": library_versions(),
        **({} if conditions.engine is None else {"engine": conditions.engine.model_dump()}),
    }
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    job = GenerationJob(
        **judged.model_dump(),
        label=label or model,
        system_prompt=system_prompt,
        decoding=decoding,
        requests=requests,
        run_dir=run_dir.resolve(),
        engine=conditions.engine,
        lock_path=conditions.lock_path.resolve(),
    )
    job_path = run_dir.resolve() / JOB
    job_path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return PreparedGeneration(model, job, job_path, inputs)


def judged_model(model: Model, adapter: Adapter, device: Device) -> JudgedModel:
    """Return what to load to generate with a model of a run: base, adapter, quantisation, dtype and device.

    Raises:
        RefusedError: The base is gone or is another one.
    """
    manifest, recipe = adapter.manifest, adapter.manifest.recipe
    base, trained_in = manifest.base_model, manifest.result.compute_dtype
    held, compute_dtype = held_on(device, base.num_values, trained_in)
    return JudgedModel(
        base_path=find_recorded_base(base),
        adapter_path=adapter.folder.resolve() if model == "adapter" else None,
        quantization=recipe.bnb_4bit_quant_type,
        double_quant=recipe.bnb_4bit_use_double_quant,
        trained_in=trained_in,
        device=device.kind,
        compute_dtype=compute_dtype,
        held=held,
    )


def held_on(device: Device, num_values: int, trained_in: Dtype) -> tuple[Held, Dtype]:
    """Return the precisions in which base and adapter are held and computed on a device.

    Dense they answer fastest. Where they do not fit so, they are held as they were trained, which always fits.
    """
    compute_dtype = computed_in(device)
    if all(fits_dense(device, num_values, dtype) for dtype in (trained_in, compute_dtype)):
        return "dense", compute_dtype
    return "nf4", trained_in


def fits_dense(device: Device, num_values: int, dtype: Dtype) -> bool:
    """Return whether so many values fit a device beside what a batch of answers takes; a CPU has room."""
    weights = num_values * (2 if dtype == "bfloat16" else 4) / 2**30
    return device.kind != "cuda" or device.memory_gb is None or weights + _BESIDE_GB <= device.memory_gb


def positions_on(device: Device, judged: JudgedModel, num_values: int) -> int:
    """Return how many positions of the KV cache fit a GPU beside the weights, with room for the rest; 0 elsewhere."""
    if device.kind != "cuda" or device.memory_gb is None:
        return 0
    config = configuration_of(judged.base_path)
    text = config.get("text_config", config)
    heads = text["num_attention_heads"]
    width = text.get("head_dim") or text["hidden_size"] // heads
    layers = text.get("layer_types") or ["full_attention"] * text["num_hidden_layers"]
    num_full = sum(not kind.startswith("linear") for kind in layers)
    size = 2 if judged.compute_dtype == "bfloat16" else 4
    position = 2 * size * num_full * width * (text.get("num_key_value_heads") or heads)
    weights = num_values * (size if judged.held == "dense" else _NF4_BYTES) / 2**30
    return max(0, int(_OF_ROOM * (device.memory_gb - weights - _BESIDE_GB) * 2**30 / max(1, position)))


def computed_in(device: Device) -> Dtype:
    """Return the dtype that completions are computed in."""
    return "bfloat16" if device.kind == "cuda" and device.has_bfloat16 else "float32"


def all_generated(
    asked: Mapping[str, PreparedGeneration], store: ArtifactStore, launch: Callable[[PreparedGeneration], int]
) -> dict[str, Artifact]:
    """Generate several completions as `generated` does; what one model has to do takes one process and one load."""
    waiting = {
        name: prepared
        for name, prepared in asked.items()
        if store.find(KIND, _stage(prepared).inputs((), prepared.inputs)) is None
    }
    artifacts = {}
    for name, prepared in asked.items():
        same = [other for other in waiting.values() if _is_same_model(other, prepared) and other is not prepared]
        artifacts[name], _ = generated(_with(prepared, same) if name in waiting else prepared, store, launch)
        waiting.pop(name, None)
    return artifacts


def _is_same_model(left: PreparedGeneration, right: PreparedGeneration) -> bool:
    """Return whether a process can do both; servers of a model are started for one alone."""
    models = [job.model_dump(include=set(JudgedModel.model_fields)) for job in (left.job, right.job)]
    return models[0] == models[1] and left.job.engine is right.job.engine is None


def _with(prepared: PreparedGeneration, others: Sequence[PreparedGeneration]) -> PreparedGeneration:
    """Return a generation whose process does others next; those that are done already have left their answers."""
    left = tuple(other.job_path for other in others if not (other.job.run_dir / ANSWERS).is_file())
    job = prepared.job.model_copy(update={"then": left})
    prepared.job_path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return replace(prepared, job=job)


def generated(
    prepared: PreparedGeneration, store: ArtifactStore, launch: Callable[[PreparedGeneration], int]
) -> tuple[Artifact, bool]:
    """Generate the completions of a model, unless the very same were generated before and are unchanged.

    Returns:
        The answers, and whether they were reused. The folder holds `answers.jsonl`.

    Raises:
        RefusedError: The process did not come to its end; the message says why.
        ConfigurationError: The store cannot be written.
    """
    run_dir = prepared.job.run_dir

    def write(folder: Path) -> dict[str, Any]:
        if not (run_dir / ANSWERS).is_file():  # where another generation of the same model did not do it as well
            refuse_failure(run_dir, launch(prepared), "generation")
        shutil.copy2(run_dir / ANSWERS, folder / ANSWERS)
        return {"model": prepared.job.label, "num_requests": len(prepared.job.requests)}

    adapter = prepared.job.adapter_path
    parents = store.holding(adapter) if adapter is not None else ()
    answers, reused = _stage(prepared).build(store, parents, prepared.inputs, write)
    shutil.rmtree(run_dir, ignore_errors=True)
    return answers, reused


def _stage(prepared: PreparedGeneration) -> Stage:
    decoding = prepared.job.decoding
    return _FREE if decoding.syntax is Syntax.FREE else STAGE if decoding.names else _UNNAMED


def answer_fits(base: Base, decoding: Decoding) -> Callable[[str], bool]:
    """Return whether a text, with the end of its turn, is short enough for an answer.

    Raises:
        RefusedError: The base model is gone, or its tokenizer cannot be read.
    """
    path = base_folder(base) / "tokenizer.json"
    if not path.is_file():
        raise RefusedError(f"{path}: the base model of this adapter is gone. Restore it, or train again.")
    tokenizer = read_tokenizer(path)
    return lambda text: len(tokenizer.encode(text.rstrip("\n")).ids) < decoding.max_new_tokens


@dataclass(frozen=True)
class LocalGenerator:
    """A generator that answers in a process of its own, all requests of a call as one batch.

    `launch` runs the process of a job and returns its exit code.
    """

    adapter: Adapter
    conditions: Conditions
    work: Path
    launch: Callable[[PreparedGeneration], int]

    @property
    def name(self) -> str:
        """The base model, and that the adapter is with it."""
        return f"{self.adapter.manifest.base_model.name} with adapter"

    @property
    def digest(self) -> str:
        """SHA-256 of the adapter."""
        return self.adapter.digest

    @property
    def decoding(self) -> Mapping[str, Any]:
        """Decoding options in JSON types."""
        is_batch_felt = self.conditions.device.kind != "cpu"
        return self.conditions.decoding.model_dump(mode="json", exclude=None if is_batch_felt else {"batch_tokens"})

    @property
    def max_new_tokens(self) -> int:
        """Tokens of a reply at most."""
        return self.conditions.decoding.max_new_tokens

    def answer(
        self, requests: Sequence[Asking], record: Callable[[Reply], None], time_left: Callable[[], float]
    ) -> None:
        """Answer requests; those that are told different things first go to different processes.

        Raises:
            RefusedError: The run is not complete, its base is gone, or the process failed.
        """
        for system, group in groupby(requests, key=lambda request: request.system):
            if time_left() > 0:
                self._answer_batch(system, list(group), record)

    def _answer_batch(self, system: str, requests: list[Asking], record: Callable[[Reply], None]) -> None:
        asked = [Request(task=request.key, prompt=request.prompt) for request in requests]
        prepared = prepare_generation("adapter", self.adapter, asked, self.conditions, self.work, system_prompt=system)
        refuse_failure(self.work, self.launch(prepared), "generation")
        num_bytes = {request.key: request.num_bytes for request in requests}
        for answer in read_models(self.work / ANSWERS, Answer):
            # The process counts what it writes; of what it was given no more is known than its length.
            num_tokens, num_written = num_bytes[answer.task] + answer.num_tokens, answer.num_tokens
            reply = {"text": answer.text, "stopped": answer.stopped, "num_written": num_written}
            record(Reply(key=answer.task, num_tokens=num_tokens, **reply))
        shutil.rmtree(self.work, ignore_errors=True)
