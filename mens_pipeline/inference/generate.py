"""From a generation job to `answers.jsonl`. For a generation process alone."""

import gc
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoTokenizer, GenerationConfig

from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.decode import Row, Vocabulary, decode
from mens_pipeline.inference.engine import Prompt, answered, serving
from mens_pipeline.inference.generation import ANSWERS, Answer, Engine, GenerationJob, Request, is_program
from mens_pipeline.inference.model import load_judged, save_merged
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.jobs.progress import FILE, TelemetryLog
from mens_pipeline.models.chat import IM_END, encode_prompt
from mens_pipeline.storage.jsonl import write_jsonl

_SERVED: Final = "served"
_ENGINE_LOG: Final = "engine.log"


def generate(job: GenerationJob) -> None:
    """Answer every request of a job, and write the answers in the order of the requests; a second try comes behind all.

    The jobs in `then` are done with the same loaded model.

    Raises:
        RefusedError: The adapter does not fit the base, or a server does not answer.
    """
    # Numbers next to zero slow a CPU down a hundredfold, and decide nothing.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(job.base_path, trust_remote_code=False)
    log = TelemetryLog(job.run_dir / FILE)
    model = _Model(job, tokenizer)
    for each in (job, *(GenerationJob.model_validate_json(path.read_text(encoding="utf-8")) for path in job.then)):
        report = CompletionCounter(log, each.label)
        write_jsonl(each.run_dir / ANSWERS, _answered(each, _Loop(each, model, report), tokenizer, report))


def _answered(job: GenerationJob, loop: "_Loop", tokenizer: Any, report: "CompletionCounter") -> list[Answer]:
    every = [(request, sample) for request in job.requests for sample in range(job.decoding.num_samples)]
    if job.decoding.syntax is Syntax.CONSTRAINED:
        answers = loop.answered(every, is_constrained=True)
    elif job.engine is not None:
        answers = _answered_by(job.engine, job, tokenizer, every, report)
    else:
        answers = loop.answered(every, is_constrained=False)
    if job.decoding.syntax is Syntax.FALLBACK:
        pairs = zip(every, answers, strict=True)
        failed = [asked for asked, answer in pairs if not is_program(answer.text, asked[0].mode)]
        answers += loop.answered(failed, is_constrained=True)
    return answers


def _prompt(tokenizer: Any, job: GenerationJob, request: Request) -> tuple[int, ...]:
    return encode_prompt(tokenizer, job.system_prompt, request.prompt)


def _answered_by(
    engine: Engine,
    job: GenerationJob,
    tokenizer: Any,
    asked: Sequence[tuple[Request, int]],
    report: "CompletionCounter",
) -> list[Answer]:
    """Let servers of the merged model answer freely; they have ended when a model is loaded here."""
    folder = job.run_dir / _SERVED
    _save_served(job, tokenizer, folder)
    prompts = [Prompt(request.task, sample, _prompt(tokenizer, job, request)) for request, sample in asked]
    report.num_rows += len(prompts)
    with serving(engine, folder, job.run_dir / _ENGINE_LOG) as endpoints:
        answers = answered(endpoints, prompts, job.decoding, engine.at_once, report.count)
    shutil.rmtree(folder)
    return answers


def _save_served(job: GenerationJob, tokenizer: Any, folder: Path) -> None:
    """Write the model as any program loads it: what is judged is what is handed on."""
    model = load_judged(job.model_copy(update={"held": "dense", "device": "cpu"}))
    # Nothing of what the base prefers but where a turn ends: requests say how they are answered.
    model.generation_config = GenerationConfig(eos_token_id=sorted(vocabulary_of(tokenizer, model).stop))
    save_merged(model, job.base_path, folder)
    tokenizer.save_pretrained(folder)
    del model
    gc.collect()


class _Model:
    """The model of a process, loaded when it is first asked."""

    def __init__(self, job: GenerationJob, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._job = job
        self._loaded: tuple[Any, Vocabulary] | None = None

    def loaded(self) -> tuple[Any, Vocabulary]:
        if self._loaded is None:
            model = load_judged(self._job)
            pack_linear(model)
            self._loaded = model, vocabulary_of(self.tokenizer, model)
        return self._loaded


class _Loop:
    """Our own loop, for the requests of one job."""

    def __init__(self, job: GenerationJob, model: _Model, report: "CompletionCounter") -> None:
        self._job = job
        self._model = model
        self._report = report

    def answered(self, requests: Sequence[tuple[Request, int]], *, is_constrained: bool) -> list[Answer]:
        if not requests:
            return []
        (model, vocabulary), tokenizer, decoding = self._model.loaded(), self._model.tokenizer, self._job.decoding
        rows = [Row(request.task, sample, _prompt(tokenizer, self._job, request)) for request, sample in requests]
        if is_constrained:
            for row, (request, _) in zip(rows, requests, strict=True):
                row.constraint = Constraint(
                    tokenizer, vocabulary.stop, request.mode, decoding.max_new_tokens, names=decoding.names
                )
        if decoding.num_samples > 1:
            for row in rows:
                row.log_probability = 0.0
        self._report.num_rows += len(rows)
        decode(model, rows, vocabulary, decoding, lambda row: self._report.count(len(row.tokens)))
        return [_answer_of(row, tokenizer) for row in rows]


def _answer_of(row: Row, tokenizer: Any) -> Answer:
    return Answer(
        task=row.name,
        sample=row.sample,
        text=tokenizer.decode(row.tokens[:-1] if row.stopped else row.tokens, skip_special_tokens=True),
        num_tokens=len(row.tokens),
        stopped=row.stopped,
        constrained=row.constraint is not None,
        forced=row.constraint is not None and row.constraint.is_forced,
        likelihood=None if row.log_probability is None else row.log_probability / len(row.tokens),
    )


def vocabulary_of(tokenizer: Any, model: Any) -> Vocabulary:
    """Return the ids that end a turn: that of ChatML, and what the model itself names."""
    end = tokenizer.convert_tokens_to_ids(IM_END)
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    return Vocabulary(frozenset({end, *(token for token in named if token is not None)}), end)


class CompletionCounter:
    """Counts the completions of a model, and logs each."""

    def __init__(self, log: TelemetryLog, label: str, num_rows: int = 0) -> None:
        """Begin now; `num_rows` are asked for so far."""
        self.num_rows = num_rows
        self._log = log
        self._label = label
        self._num_done = 0
        self._num_tokens = 0
        self._begin = time.monotonic()

    def count(self, num_tokens: int) -> None:
        """Count a completion of so many tokens."""
        self._num_done += 1
        self._num_tokens += num_tokens
        payload = {
            "model": self._label,
            "num_done": self._num_done,
            "num_answers": self.num_rows,
            "num_tokens": self._num_tokens,
            "seconds": time.monotonic() - self._begin,
        }
        self._log.write("answer", payload)


_ROWS = 32
"""The number of rows that weights are packed for; others are served from the same packing."""


class PackedLinear(torch.nn.Module):  # type: ignore[misc]  # the library is untyped
    """A linear layer that can answer, and neither be trained nor saved."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        """Pack the weights of a layer in float32 on the CPU, which is left as it is."""
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)  # noqa: SLF001 - its name
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply rows of shape `(..., inputs)`."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")  # noqa: SLF001 - its name
        return product


def pack_linear(model: torch.nn.Module) -> None:
    """Replace every linear layer in float32 on the CPU; others, and where there is no oneDNN, stay."""
    if not torch.backends.mkldnn.is_available():
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            is_linear = type(child) is torch.nn.Linear
            if is_linear and child.weight.device.type == "cpu" and child.weight.dtype == torch.float32:
                setattr(parent, name, PackedLinear(child))
