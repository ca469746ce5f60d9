"""From a generation job to `completions.jsonl`. For a generation process alone."""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import torch
from transformers import AutoTokenizer

from mens_pipeline.inference.begun_word import BegunWord
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.generation import (
    COMPLETIONS,
    Completion,
    Decoding,
    EvaluatedModel,
    GenerationJob,
    Request,
    Syntax,
)
from mens_pipeline.inference.insert_constraint import InsertConstraint
from mens_pipeline.inference.kv_cache import state_positions
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.agent import Team, own_team
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.jobs.progress import SilentLog, TelemetryLog
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.chat import encode_prompt, format_for
from mens_pipeline.models.infill import encode_infill_prompt, encode_prefix, split_word
from mens_pipeline.storage.jsonl import write_jsonl

_MANY: Final = 32
"""Completions that are written at once, about; the weights are laid out for so many."""
_READ_SHARE: Final = 4
"""One pass on a GPU reads prompts for one in so many slots at most: for a moment they take as much again."""


def generate(job: GenerationJob) -> None:
    """Complete every request of a job, and write the completions in their order; second tries come behind all.

    The jobs in `then` are done with the same loaded model. Several processes divide the requests of each job, whose
    completions the first one writes.

    Raises:
        RefusedError: The adapter does not fit the base.
    """
    # Numbers next to zero slow a CPU down a hundredfold, and decide nothing.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(job.base_path, trust_remote_code=False)
    team = own_team(own_environment())
    team.meet()
    log = TelemetryLog(job.run_dir / TELEMETRY) if team.is_first else SilentLog()
    loaded: dict[EvaluatedModel, tuple[Any, frozenset[int]]] = {}

    def load(evaluated: EvaluatedModel) -> tuple[Any, frozenset[int]]:
        if evaluated not in loaded:
            loaded.clear()  # two do not fit
            gc.collect()
            place = None
            if evaluated.device == "cuda" and team.size > 1:
                torch.cuda.set_device(place := team.local_rank)  # some kernels start on the current one
            model = speed_up(load_evaluated(evaluated, place), _MANY)
            loaded[evaluated] = model, stop_tokens(tokenizer, model)
        return loaded[evaluated]

    jobs = (job, *(GenerationJob.model_validate_json(path.read_text(encoding="utf-8")) for path in job.then))
    generations = [_Generation(each, tokenizer, load, log, team) for each in jobs]
    generations.sort(key=lambda one: str(one.job.evaluated))  # each model is loaded once
    for one in generations:
        completions = one.complete_all()
        if team.is_first:
            write_jsonl(one.job.run_dir / COMPLETIONS, completions)


@dataclass(frozen=True)
class _Generation:
    """One job; its model, with the tokens that end a turn, is loaded when it is first needed."""

    job: GenerationJob
    tokenizer: Any
    load: Callable[[EvaluatedModel], tuple[Any, frozenset[int]]]
    log: TelemetryLog
    team: Team

    @cached_property
    def report(self) -> "CompletionCounter":
        """Counts from when it is first asked for."""
        shares = self.team.size
        label = self.job.label if shares == 1 else f"{self.job.label}, the first of {shares} shares"
        return CompletionCounter(self.log, label)

    def complete_all(self) -> list[Completion]:
        """Complete the requests of the job, each as often as it is to be sampled; only the first process gets any."""
        decoding = self.job.decoding
        every = [(request, sample) for request in self.job.requests for sample in range(decoding.num_samples)]
        places = {(request.task, sample): place for place, (request, sample) in enumerate(every)}
        own = every[self.team.rank :: self.team.size]
        completions = self._complete(own, is_constrained=decoding.syntax is Syntax.CONSTRAINED)
        failed = []
        if decoding.syntax is Syntax.FALLBACK:
            pairs = zip(own, completions, strict=True)
            failed = [asked for asked, completion in pairs if not asked[0].is_met_by(completion.text)]
        parts = self.team.collect((completions, self._complete(failed, is_constrained=True)))
        tries = (
            sorted(chain(*some), key=lambda one: places[one.task, one.sample]) for some in zip(*parts, strict=True)
        )
        return [*chain(*tries)]

    def _prompt(self, request: Request) -> tuple[int, ...]:
        if request.window is None:
            return encode_prompt(self.tokenizer, self.job.system_prompt, request.prompt)
        if request.suffix is None:
            return encode_prefix(self.tokenizer, request.prompt, request.window)
        assert self.job.infill_order is not None, "a job with a suffix says it"  # noqa: S101 - our own impossibility
        around = (request.prompt, request.suffix, request.window)
        return encode_infill_prompt(self.tokenizer, *around, self.job.infill_order)

    def _constraint(self, request: Request, stop: frozenset[int]) -> Constraint | InsertConstraint:
        if request.suffix is not None:
            prefix, word = split_word(request.prompt)
            return InsertConstraint(self.tokenizer, stop, request.mode, prefix, request.suffix, begun=word)
        decoding = self.job.decoding
        return Constraint(self.tokenizer, stop, request.mode, decoding.max_new_tokens, names=decoding.names)

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        """The tokens that hold a line end."""
        texts = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
        return frozenset(token for token, text in enumerate(texts) if "\n" in text)

    def _complete(self, requests: Sequence[tuple[Request, int]], *, is_constrained: bool) -> list[Completion]:
        """Complete requests, each given with the number of its sample."""
        if not requests:
            return []
        (model, stop), tokenizer, decoding = self.load(self.job.evaluated), self.tokenizer, self.job.decoding
        rows = []
        for request, sample in requests:
            constraint = self._constraint(request, stop) if is_constrained else None
            row = new_row(request.task, sample, self._prompt(request), decoding, constraint)
            if request.window is not None:
                _, word = split_word(request.prompt)
                if word:
                    row.word = BegunWord(tokenizer, word)
                    row.max_tokens += len(tokenizer.encode(word, add_special_tokens=False))
                row.log_probability = 0.0  # by which it is shown or withheld
                row.also_stop = self._line_ends if request.is_line else frozenset()
            rows.append(row)
        self.report.num_rows += len(rows)
        complete_rows(model, rows, stop, decoding.batch_tokens, lambda row: self.report.count(len(row.tokens)))
        return [_completion_of(row, tokenizer) for row in rows]


@dataclass(eq=False, kw_only=True)
class Row(Slot):
    """A completion to a task, by its name, and which of the samples of it, from 0.

    Tokens of `also_stop` end it as well: the end of a line, where a line is asked for.
    """

    name: str
    sample: int
    also_stop: frozenset[int] = frozenset()

    def take(self, token: int, scores: "torch.Tensor", stop: frozenset[int]) -> None:
        """Write a token; one of `also_stop` ends the completion, and is part of it."""
        super().take(token, scores, stop)
        if self.end is None and token in self.also_stop:
            self.end = "length"

    @property
    def stopped(self) -> bool:
        """Whether the end of the turn was written."""
        return self.end == "stop"


def new_row(
    name: str,
    sample: int,
    prompt: Sequence[int],
    decoding: Decoding,
    constraint: Constraint | InsertConstraint | None = None,
) -> Row:
    """Return a completion that has not begun; one of several samples adds up the log-probabilities of its tokens."""
    return Row(
        tuple(prompt),
        Sampler(decoding.temperature, decoding.top_p, f"{decoding.seed}:{name}:{sample}"),
        decoding.max_new_tokens,
        constraint,
        0.0 if decoding.num_samples > 1 else None,
        name=name,
        sample=sample,
    )


def complete_rows(
    model: Any, rows: Sequence[Row], stop: frozenset[int], batch_tokens: int, done: Callable[[Row], None]
) -> None:
    """Write all completions into their rows; long prompts first, so that memory is at its highest at once.

    `stop` are tokens that end a turn, `batch_tokens` positions that are held at once; `done` takes each row when its
    completion has ended.
    """
    ordered = sorted(rows, key=lambda row: (-len(row.prompt), row.name, row.sample))
    state = state_positions(model) if rows else 0
    for band in _bands(ordered):
        num_positions = max(row.num_positions for row in band)
        num_slots = max(1, batch_tokens // (num_positions + state))
        # A CPU reads once what two prompts share; a GPU waits for the launches of a short prompt.
        num_read = 1 if model.device.type == "cpu" else max(1, num_slots // _READ_SHARE)
        engine = Engine[Row](model, stop, num_slots, num_positions=num_positions, num_read=num_read)
        waiting = deque(band)
        while waiting or engine.slots:
            while waiting and engine.has_room:
                engine.admit(waiting.popleft())
            for row in engine.step():
                done(row)


def _bands(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows of like length: each row of a band fills at least half of the room that its longest row reserves."""
    band: list[Row] = []
    for row in rows:
        if band and 2 * row.num_positions < band[0].num_positions:
            yield band
            band = []
        band.append(row)
    if band:
        yield band


def _completion_of(row: Row, tokenizer: Any) -> Completion:
    text = tokenizer.decode(row.tokens[:-1] if row.stopped else row.tokens, skip_special_tokens=True)
    return Completion(
        task=row.name,
        sample=row.sample,
        text=text if row.word is None else text.removeprefix(row.word.text),
        num_tokens=len(row.tokens),
        stopped=row.stopped,
        constrained=row.constraint is not None,
        forced=row.constraint is not None and row.constraint.is_forced,
        likelihood=None if row.log_probability is None else row.log_probability / len(row.tokens),
    )


def stop_tokens(tokenizer: Any, model: Any) -> frozenset[int]:
    """Return the tokens that end a turn: that of its chat format, and those that the model itself names."""
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    end: int = tokenizer.convert_tokens_to_ids(format_for(tokenizer).end)
    return frozenset({end, *(token for token in named if token is not None)})


class CompletionCounter:
    """Counts the completions of a model, and logs each."""

    def __init__(self, log: TelemetryLog, label: str, num_rows: int = 0) -> None:
        """Start the clock; `num_rows` completions are expected so far."""
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
