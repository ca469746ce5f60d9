"""From a generation job to `answers.jsonl`. For a generation process alone."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoTokenizer

from mens_pipeline.inference.answer_code import is_program
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.decode import Row, Vocabulary, decode
from mens_pipeline.inference.generation import ANSWERS, PROGRESS, Answer, GenerationJob, Request
from mens_pipeline.inference.model import load_judged
from mens_pipeline.inference.packed_linear import pack_linear
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.training.chat import IM_END, encode_prompt
from mens_pipeline.training.telemetry_log import TelemetryLog


def generate(job: GenerationJob, listen: Callable[[dict[str, Any]], None]) -> None:
    """Answer every request of a job, and write the answers in the order of the requests; a second try comes behind all.

    Args:
        job: Which model, which requests.
        listen: Takes one event for each answer: how many are done, tokens, seconds.

    Raises:
        RefusedError: The adapter does not fit the base.
    """
    # Numbers next to zero slow a CPU down a hundredfold, and decide nothing.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(job.base_path, trust_remote_code=False)
    model = load_judged(job)
    pack_linear(model)
    vocabulary, decoding = vocabulary_of(tokenizer, model), job.decoding

    report = _Report(TelemetryLog(job.run_dir / PROGRESS, listen))

    def answered(requests: Sequence[tuple[Request, int]], *, is_constrained: bool) -> list[Answer]:
        rows = [
            Row(request.task, sample, encode_prompt(tokenizer, job.system_prompt, request.prompt))
            for request, sample in requests
        ]
        if is_constrained:
            for row, (request, _) in zip(rows, requests, strict=True):
                row.constraint = Constraint(
                    tokenizer, vocabulary.stop, request.mode, decoding.max_new_tokens, names=decoding.names
                )
        if decoding.num_samples > 1:
            for row in rows:
                row.log_probability = 0.0
        report.num_rows += len(rows)
        decode(model, rows, vocabulary, decoding, report.done)
        return [_answer_of(row, tokenizer) for row in rows]

    every = [(request, sample) for request in job.requests for sample in range(decoding.num_samples)]
    answers = answered(every, is_constrained=decoding.syntax is Syntax.CONSTRAINED)
    if decoding.syntax is Syntax.FALLBACK:
        pairs = zip(every, answers, strict=True)
        failed = [asked for asked, answer in pairs if not is_program(answer.text, asked[0].mode)]
        answers += answered(failed, is_constrained=True)
    write_jsonl(job.run_dir / ANSWERS, answers)


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
    """Return the ids that end a turn: that of ChatML, and what the model itself names.

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

    def __init__(self, log: TelemetryLog) -> None:
        self.num_rows = 0
        self._log = log
        self._num_done = 0
        self._num_tokens = 0
        self._begin = time.monotonic()

    def done(self, row: Row) -> None:
        self._num_done += 1
        self._num_tokens += len(row.tokens)
        payload = {
            "num_done": self._num_done,
            "num_answers": self.num_rows,
            "num_tokens": self._num_tokens,
            "seconds": time.monotonic() - self._begin,
        }
        self._log.write("answer", payload)
