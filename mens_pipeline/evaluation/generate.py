"""From a generation job to `answers.jsonl`. For a generation process alone."""

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoTokenizer

from mens_pipeline.corpus.jsonl import write_jsonl
from mens_pipeline.evaluation.constraint import Constraint
from mens_pipeline.evaluation.decode import Row, Vocabulary, decode
from mens_pipeline.evaluation.generation import ANSWERS, PROGRESS, Answer, GenerationJob, Request
from mens_pipeline.evaluation.model import load_judged
from mens_pipeline.evaluation.packed_linear import pack_linear
from mens_pipeline.training.chat import IM_END, encode_prompt
from mens_pipeline.training.telemetry_log import TelemetryLog


def generate(job: GenerationJob, listen: Callable[[dict[str, Any]], None]) -> None:
    """Answer every request of a job, and write the answers in the order of the requests.

    Args:
        job: Which model, which requests.
        listen: Takes one event for each answer: how many are done, tokens, seconds.

    Raises:
        RefusedError: The adapter does not fit the base.
    """
    # Numbers next to zero slow a processor down a hundredfold, and decide nothing.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(job.base_path, trust_remote_code=False)
    model = load_judged(job)
    pack_linear(model)
    vocabulary, decoding = vocabulary_of(tokenizer, model), job.decoding

    def constraint(request: Request) -> Constraint | None:
        if not decoding.is_constrained:
            return None
        return Constraint(tokenizer, vocabulary.stop, request.mode, decoding.max_new_tokens)

    rows = [
        Row(
            request.task,
            sample,
            encode_prompt(tokenizer, job.system_prompt, request.prompt),
            constraint=constraint(request),
        )
        for request in job.requests
        for sample in range(job.decoding.num_samples)
    ]
    log = TelemetryLog(job.run_dir / PROGRESS, listen)
    report = _Report(len(rows), log)
    decode(model, rows, vocabulary, decoding, report.done)
    answers = (
        Answer(
            task=row.name,
            sample=row.sample,
            text=tokenizer.decode(row.tokens[:-1] if row.stopped else row.tokens, skip_special_tokens=True),
            num_tokens=len(row.tokens),
            stopped=row.stopped,
            forced=row.constraint is not None and row.constraint.is_forced,
        )
        for row in rows
    )
    write_jsonl(job.run_dir / ANSWERS, answers)


def vocabulary_of(tokenizer: Any, model: Any) -> Vocabulary:
    """The ids that end a turn: that of ChatML, and what the model itself names.

    Args:
        tokenizer: Of the base model.
        model: The model.
    """
    end = tokenizer.convert_tokens_to_ids(IM_END)
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    return Vocabulary(frozenset({end, *(token for token in named if token is not None)}), end)


class _Report:
    """Counts answers, and says so."""

    def __init__(self, num_rows: int, log: TelemetryLog) -> None:
        self._log = log
        self._num_rows = num_rows
        self._num_done = 0
        self._num_tokens = 0
        self._begin = time.monotonic()

    def done(self, row: Row) -> None:
        self._num_done += 1
        self._num_tokens += len(row.tokens)
        payload = {
            "num_done": self._num_done,
            "num_answers": self._num_rows,
            "num_tokens": self._num_tokens,
            "seconds": time.monotonic() - self._begin,
        }
        self._log.write("answer", payload)
