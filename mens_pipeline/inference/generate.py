"""Run a generation job, and write its completions to files. Only a generation process imports this."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import torch
from transformers import AutoTokenizer

from mens_pipeline.errors import RefusedError, describe_machine_problem
from mens_pipeline.inference.constraint import BegunWord, Constraint, InsertConstraint
from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.generation import (
    Completion,
    Decoding,
    Generation,
    GenerationJob,
    Request,
    Syntax,
)
from mens_pipeline.inference.kv_cache import state_positions
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.agent import Team, own_team
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.jobs.progress import NOWHERE, TelemetryLog
from mens_pipeline.language.surroundings import Surroundings
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.chat import encode_prompt, format_for
from mens_pipeline.models.infill import encode_infill_prompt, encode_prefix, split_word
from mens_pipeline.storage.jsonl import write_jsonl

_READ_SHARE: Final = 4
"""On a GPU, one pass reads prompts for at most one slot in four, since reading briefly needs their memory twice."""


def generate(job: GenerationJob) -> None:
    """Complete every request of a job, and write the completions of each generation; second tries come last.

    Several processes share the requests of each generation; the first one writes the completions. `RefusedError` if
    the adapter does not fit the base.
    """
    # Denormal numbers slow a CPU down a hundredfold and do not change a token.
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(job.first.base_path, trust_remote_code=False)
    team = own_team(own_environment())
    team.meet()
    log = TelemetryLog(job.run_dir / TELEMETRY if team.is_first else NOWHERE)
    place = None
    if job.first.device == "cuda" and team.size > 1:
        torch.cuda.set_device(place := team.local_rank)  # some kernels run on the current device
    model = speed_up(load_evaluated(job.first, place), in_eight_bits=job.first.in_eight_bits)
    stop = stop_tokens(tokenizer, model)
    for name, generation in job.generations.items():
        completions = _Writer(generation, tokenizer, model, stop, log, team).complete_all()
        if team.is_first:
            write_jsonl(job.completions(name), completions)


@dataclass(frozen=True)
class _Writer:
    generation: Generation
    tokenizer: Any
    model: Any
    stop: frozenset[int]
    log: TelemetryLog
    team: Team

    @cached_property
    def report(self) -> "CompletionCounter":
        """The counter of completions, whose clock starts at the first access."""
        shares = self.team.size
        label = self.generation.label
        if shares > 1:
            label += f", the first of {shares} shares"
        return CompletionCounter(self.log, label)

    def complete_all(self) -> list[Completion]:
        """Draw all samples of all requests; only the first process receives them."""
        decoding = self.generation.decoding
        every = [(request, sample) for request in self.generation.requests for sample in range(decoding.num_samples)]
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
            return encode_prompt(self.tokenizer, self.generation.system_prompt, request.prompt)
        prefix, suffix = request.view or (request.prompt, request.suffix or "")
        if request.suffix is None:
            return encode_prefix(self.tokenizer, prefix, request.window)
        assert self.generation.infill_order is not None, "a job with a suffix says it"  # noqa: S101 - an internal invariant
        order = self.generation.infill_order
        return encode_infill_prompt(self.tokenizer, prefix, suffix, request.window, order)

    def _constraint(self, request: Request) -> Constraint | InsertConstraint:
        if request.suffix is not None:
            around = Surroundings(request.prompt, request.suffix, request.mode)
            return InsertConstraint(self.tokenizer, self.stop, around, begun=split_word(request.prompt)[1])
        decoding = self.generation.decoding
        return Constraint(self.tokenizer, self.stop, request.mode, decoding.max_new_tokens)

    @cached_property
    def _line_ends(self) -> frozenset[int]:
        texts = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
        return frozenset(token for token, text in enumerate(texts) if "\n" in text)

    def _complete(self, requests: Sequence[tuple[Request, int]], *, is_constrained: bool) -> list[Completion]:
        if not requests:
            return []
        tokenizer, decoding = self.tokenizer, self.generation.decoding
        slots = []
        for request, sample in requests:
            constraint = self._constraint(request) if is_constrained else None
            slot = new_slot(request.task, sample, self._prompt(request), decoding, constraint)
            if request.window is not None:
                _, word = split_word(request.prompt)
                if word:
                    slot.word = BegunWord(tokenizer, word)
                    slot.max_tokens += len(tokenizer.encode(word, add_special_tokens=False))
                slot.log_probability = 0.0  # decides whether it is shown or withheld
                slot.also_stop = self._line_ends if request.is_line else frozenset()
            slots.append(slot)
        report = self.report
        report.num_slots += len(slots)
        complete_slots(self.model, slots, self.stop, decoding.batch_tokens, lambda slot: report.count(len(slot.tokens)))
        return [_read_completion(slot, tokenizer) for slot in slots]


def new_slot(
    name: str,
    sample: int,
    prompt: Sequence[int],
    decoding: Decoding,
    constraint: Constraint | InsertConstraint | None = None,
) -> Slot:
    """Return an empty slot; with several samples, it also sums the log-probabilities of its tokens."""
    return Slot(
        tuple(prompt),
        Sampler(decoding.temperature, decoding.top_p, f"{decoding.seed}:{name}:{sample}"),
        decoding.max_new_tokens,
        constraint,
        0.0 if decoding.num_samples > 1 else None,
        name=name,
        sample=sample,
    )


def complete_slots(
    model: Any, slots: Sequence[Slot], stop: frozenset[int], batch_tokens: int, done: Callable[[Slot], None]
) -> None:
    """Write all completions; long prompts come first, so that memory peaks early.

    Tokens of `stop` end a turn; `batch_tokens` positions are held at once; `done` is called with each slot that ended.
    """
    ordered = sorted(slots, key=lambda slot: (-len(slot.prompt), slot.name, slot.sample))
    state = state_positions(model) if slots else 0
    for band in _bands(ordered):
        num_positions = max(slot.num_positions for slot in band)
        num_slots = max(1, batch_tokens // (num_positions + state))
        # A CPU reads the common prefix of two prompts once; on a GPU, a short prompt alone waits for kernel launches.
        num_read = 1 if model.device.type == "cpu" else max(1, num_slots // _READ_SHARE)
        try:
            engine = Engine[Slot](model, stop, num_slots, num_positions=num_positions, num_read=num_read)
            waiting = deque(band)
            while waiting or engine.slots:
                while waiting and engine.has_room:
                    engine.admit(waiting.popleft())
                for slot in engine.step():
                    done(slot)
        except torch.OutOfMemoryError as error:
            found = f"{num_slots} completions of {num_positions} positions at once: {describe_machine_problem(error)}"
            raise RefusedError(f"{found} The CPU always has room (--device cpu, VOX_BACKEND=cpu).") from error


def _bands(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    band: list[Slot] = []
    for slot in slots:
        if band and 2 * slot.num_positions < band[0].num_positions:
            yield band
            band = []
        band.append(slot)
    if band:
        yield band


def _read_completion(slot: Slot, tokenizer: Any) -> Completion:
    text = tokenizer.decode(slot.tokens[:-1] if slot.stopped else slot.tokens, skip_special_tokens=True)
    return Completion(
        task=slot.name,
        sample=slot.sample,
        text=text if slot.word is None else text.removeprefix(slot.word.text),
        num_tokens=len(slot.tokens),
        stopped=slot.stopped,
        constrained=slot.constraint is not None,
        forced=slot.constraint is not None and slot.constraint.is_forced,
        likelihood=None if slot.log_probability is None else slot.log_probability / len(slot.tokens),
    )


def stop_tokens(tokenizer: Any, model: Any) -> frozenset[int]:
    """Return the tokens that end a turn, from the chat format and from the model's generation config."""
    named = model.generation_config.eos_token_id
    named = named if isinstance(named, list) else [named]
    end: int = tokenizer.convert_tokens_to_ids(format_for(tokenizer).end)
    return frozenset({end, *(token for token in named if token is not None)})


class CompletionCounter:
    """Counts the completions of a model, and logs each one."""

    def __init__(self, log: TelemetryLog, label: str, num_slots: int = 0) -> None:
        self.num_slots = num_slots
        self._log = log
        self._label = label
        self._num_done = 0
        self._num_tokens = 0
        self._begin = time.monotonic()

    def count(self, num_tokens: int) -> None:
        """Count a completion of `num_tokens` tokens."""
        self._num_done += 1
        self._num_tokens += num_tokens
        payload = {
            "model": self._label,
            "num_done": self._num_done,
            "num_answers": self.num_slots,
            "num_tokens": self._num_tokens,
            "seconds": time.monotonic() - self._begin,
        }
        self._log.write("answer", payload)
