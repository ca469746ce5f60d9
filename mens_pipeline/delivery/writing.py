"""Greedy answers of a model to some prompts. For a process of delivery alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mens_pipeline.delivery.merge_job import Comparison, Written
from mens_pipeline.inference.generation import GenerationJob
from mens_pipeline.training.telemetry_log import TelemetryLog


@dataclass(frozen=True, slots=True)
class Spoken:
    """Prompts and answers of a model by request, and the scores of the first token of each answer."""

    prompts: Mapping[str, tuple[int, ...]]
    written: Mapping[str, Written]
    scores: Mapping[str, Any]


def speak(  # noqa: PLR0913, PLR0917 - all that an answer rests on
    name: str,
    model: Any,
    tokenizer: Any,
    prompts: Mapping[str, tuple[int, ...]],
    job: GenerationJob,
    log: TelemetryLog,
) -> Spoken:
    """Let a model answer."""
    import torch

    from mens_pipeline.inference.decode import Row, decode  # noqa: PLC0415 - loads torch as well
    from mens_pipeline.inference.generate import vocabulary_of  # noqa: PLC0415 - likewise

    rows = [Row(task, 0, prompt) for task, prompt in prompts.items()]
    begin, done = time.monotonic(), 0
    num_tokens = 0

    def report(row: Row) -> None:
        nonlocal done, num_tokens
        done, num_tokens = done + 1, num_tokens + len(row.tokens)
        seconds = time.monotonic() - begin
        counts = {"num_done": done, "num_answers": len(rows), "num_tokens": num_tokens, "seconds": seconds}
        log.write("answer", {"model": name, **counts})

    decode(model, rows, vocabulary_of(tokenizer, model), job.decoding, report)
    with torch.inference_mode():
        scores = {task: model(torch.tensor([ids], device=model.device)).logits[0, -1] for task, ids in prompts.items()}
    written = {
        row.name: Written(
            tokens=tuple(row.tokens),
            text=tokenizer.decode(row.tokens[:-1] if row.stopped else row.tokens, skip_special_tokens=True),
            stopped=row.stopped,
        )
        for row in rows
    }
    return Spoken(prompts, written, {task: values.float().cpu() for task, values in scores.items()})


def led(model: Any, reference: Spoken) -> dict[str, tuple[int, ...]]:
    """Return the most likely token at each place of another model's completions, teacher-forced along them.

    Unlike free writing it tells a single close call that turned from a model that is another one. The reference is led
    along its own answers as well: in 16 bits, reading all tokens at once rounds otherwise than writing one by one.
    """
    import torch

    likely = {}
    with torch.inference_mode():
        for name, prompt in reference.prompts.items():
            ids = torch.tensor([*prompt, *reference.written[name].tokens], device=model.device)
            likely[name] = tuple(model(ids[None]).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist())
    return likely


def compared(
    reference: Spoken,
    candidate: Spoken,
    expected: Mapping[str, Sequence[int]],
    found: Mapping[str, Sequence[int]],
) -> tuple[Comparison, ...]:
    """Return both models, request by request, with what `led` gave for each."""
    return tuple(
        Comparison(
            task=name,
            same_prompt=reference.prompts[name] == candidate.prompts[name],
            reference=reference.written[name],
            candidate=candidate.written[name],
            num_led=sum(map(int.__eq__, expected[name], found[name])),
        )
        for name in reference.prompts
    )


def largest_difference(reference: Spoken, candidate: Spoken) -> float:
    """Return the largest difference of a logit of the first token, over all prompts and tokens."""
    pairs: Sequence[tuple[Any, Any]] = [(reference.scores[n], candidate.scores[n]) for n in reference.scores]
    return max(float((one - other).abs().max()) for one, other in pairs)
