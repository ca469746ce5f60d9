"""Prepare a request for the queue; await, choose and cancel its completions together."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from mens_pipeline.corpus.schema.records import MAX_TEXT
from mens_pipeline.evaluation.best_of import SampledText, Selector, choose_insert
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language import Mode
from mens_pipeline.models.base import configuration_of
from mens_pipeline.models.chat import Tokenizer, Turn, encode_text, encode_turns
from mens_pipeline.models.infill import encode_infill_prompt, split_at_marks
from mens_pipeline.serving.generation import (
    Event,
    Failed,
    GenerationRequest,
    GenerationResult,
    PendingCompletion,
    Piece,
)
from mens_pipeline.serving.http import MOST_STOPS, MOST_STOPS_AT_CURSOR, RequestRefusedError, client_went_away
from mens_pipeline.serving.queue import GenerationQueue, Limits
from mens_pipeline.serving.served_model import ServedModel

_SEED_BITS: Final = 63
_CANDIDATE_TEMPERATURE: Final = 0.8
_CANDIDATE_TOP_P: Final = 0.95
"""The temperature and top_p of the candidates of best-of-n, unless a request sets them."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for what a request leaves out: `best_of` where one completion is asked for and draws may differ.

    `show_all` sends pieces at a cursor that the model is unsure of as well.
    """

    syntax: Syntax
    best_of: int = 1
    names: bool = False
    show_all: bool = False


class RequestPreparer:
    """Checks requests to one model, and fills in what they leave out."""

    def __init__(self, served: ServedModel, tokenizer: Tokenizer, limits: Limits, defaults: Defaults) -> None:
        self._defaults = defaults
        self._served = served
        self._tokenizer = tokenizer
        self._limits = limits
        self._at_once = f"{limits.max_concurrent} written at once (--max-concurrent)"

    async def prepare(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request with its prompt ids, limits and sampling filled in.

        Without a system message the model gets the one of its training. Without a temperature it completes as when
        it was evaluated: always the most likely token; where one of several completions is chosen, these are sampled.

        Raises:
            RequestRefusedError: It names another model, the prompt is too long, or more is asked for than is allowed.
        """
        request = _find_cursor(request)
        self._check(request)
        turns = request.turns
        if request.ids:
            prompt = self._check_ids(request.ids)
        elif request.text is not None and request.suffix is not None:
            _refuse_long_program(request.text, request.suffix)
            request, prompt = await run_in_threadpool(self._prepare_cursor, request, request.text, request.suffix)
        elif request.text is not None:
            prompt = await run_in_threadpool(encode_text, self._tokenizer, request.text)
        else:
            if turns[0].role != "system":
                turns = (Turn("system", self._served.system_prompt), *turns)
            prompt = await run_in_threadpool(encode_turns, self._tokenizer, turns)
        best_of = self._best_of(request)
        temperature, top_p = (_CANDIDATE_TEMPERATURE, _CANDIDATE_TOP_P) if best_of > 1 else (0.0, 1.0)
        max_tokens = self._limit_tokens(request, len(prompt))
        syntax = _syntax_of(request, self._defaults.syntax)
        return replace(
            request,
            prompt=prompt,
            best_of=best_of,
            temperature=temperature if request.temperature is None else request.temperature,
            top_p=top_p if request.top_p is None else request.top_p,
            seed=secrets.randbits(_SEED_BITS) if request.seed is None else request.seed,
            max_tokens=max_tokens,
            syntax=syntax,
            names=self._defaults.names,
            threshold=None if request.suffix is None or self._defaults.show_all else self._served.infill_threshold,
            deadline=time.monotonic() + self._limits.timeout,
            warnings=(*request.warnings, *self._warnings(request, max_tokens)),
        )

    def _prepare_cursor(
        self, request: GenerationRequest, text: str, suffix: str
    ) -> tuple[GenerationRequest, tuple[int, ...]]:
        """Return a request at a cursor with its prompt; a model that was never taught this goes on to the line end."""
        window, order = self._served.infill_window, self._served.infill_order
        if window is not None and order is not None:
            return request, encode_infill_prompt(self._tokenizer, text, suffix, window, order)
        stop = tuple(dict.fromkeys((*request.stop, "\n")))
        said = (
            *request.warnings,
            "the model was not trained for a suffix: it goes on from the prompt, to the line end",
        )
        # A text without tokens is none to go on from.
        prompt = encode_text(self._tokenizer, text or "\n")
        return replace(request, suffix=None, stop=stop, best_of=None, warnings=said), prompt

    def _check_ids(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        config = configuration_of(self._served.evaluated.base_path)
        most = int(config.get("text_config", config)["vocab_size"])
        if max(ids) >= most:
            raise _invalid("prompt", f"the id {max(ids)} is none of the {most} tokens of the model")
        return ids

    def check_name(self, name: str) -> None:
        """Check that a request means the model that is served.

        Raises:
            RequestRefusedError: It means another one.
        """
        if name.removesuffix(":latest") not in self._served.names:
            message = f"The model `{name[:100]}` is not served here. Ask for {' or '.join(self._served.names)}."
            raise RequestRefusedError(404, message, param="model", code="model_not_found")

    def _best_of(self, request: GenerationRequest) -> int:
        """Return the number of completions of which one is chosen."""
        if request.best_of is None:
            is_single = request.num_completions == 1 and request.temperature != 0 and not request.continues_text
            return self._defaults.best_of if is_single else 1
        error = None
        if request.best_of > self._limits.max_concurrent:
            error = f"{request.best_of} answers are more than the {self._at_once}"
        elif request.best_of > 1 and request.num_completions > 1:
            error = f"one answer is chosen, and n asks for {request.num_completions}; leave one of them out"
        elif request.best_of > 1 and request.continues_text and request.suffix is None:
            error = "answers that go on from a text of yours are not compared; leave it out"
        elif request.best_of > 1 and request.temperature == 0:
            error = "at a temperature of 0 all answers are the same; leave it out, or ask for one above 0"
        if error is not None:
            raise _invalid("best_of", error)
        return request.best_of

    def _check(self, request: GenerationRequest) -> None:
        if request.model:
            self.check_name(request.model)
        if request.num_completions > self._limits.max_concurrent:
            raise _invalid("n", f"{request.num_completions} answers are more than the {self._at_once}")
        if request.continues_text and request.syntax not in {None, Syntax.FREE}:
            raise _invalid("decoding", "the parser steers no answer that goes on from a text of yours. Leave it out")
        if request.suffix is None and len(request.stop) > MOST_STOPS:
            raise _invalid("stop", f"{len(request.stop)} texts are more than the {MOST_STOPS} that are looked for")

    def _limit_tokens(self, request: GenerationRequest, num_prompt: int) -> int:
        context, most = self._served.max_context, self._limits.max_new_tokens
        if num_prompt >= context:
            message = f"The prompt has {num_prompt} tokens, the context of the model is {context}. Send a shorter one."
            raise RequestRefusedError(400, message, param="messages", code="context_length_exceeded")
        return min(most if request.max_tokens is None else request.max_tokens, most, context - num_prompt)

    def _warnings(self, request: GenerationRequest, room: int) -> Iterator[str]:
        """Yield what is not done as the request asks, in words."""
        limit = " (--max-new-tokens)" if room == self._limits.max_new_tokens else ""
        if request.max_tokens is not None and request.max_tokens > room:
            yield f"{request.limit_field} {request.max_tokens} is more than there is room for; it is {room}{limit}"
        if request.continues_text and request.suffix is None and self._defaults.syntax is not Syntax.FREE:
            yield "the parser steers no answer that goes on from a text of yours"
        if request.ignored:
            yield f"ignored: {', '.join(request.ignored)}"


def _syntax_of(request: GenerationRequest, default: Syntax) -> Syntax:
    """Return whether the parser constrains a completion: never one whose beginning the client has.

    Where a free try would be written again under the parser, it is constrained from the first token: the likeliest ones
    are the same up to where a free try leaves the syntax, they come at once, and the rest of that try is saved.
    """
    if request.continues_text and request.suffix is None:
        return Syntax.FREE
    wanted = default if request.syntax is None else request.syntax
    return Syntax.FREE if wanted is Syntax.FREE else Syntax.CONSTRAINED


def _find_cursor(request: GenerationRequest) -> GenerationRequest:
    """Return a request with the cursor that its text has between marks, if it has one."""
    cursor = None if request.suffix or request.text is None else split_at_marks(request.text)
    if cursor is not None:
        request = replace(request, text=cursor[0], suffix=cursor[1])
    return request if request.suffix is None else replace(request, stop=request.stop[:MOST_STOPS_AT_CURSOR])


def _refuse_long_program(text: str, suffix: str) -> None:
    """Refuse a program that takes so long to parse that others would wait for it."""
    if len(text) + len(suffix) > MAX_TEXT:
        found = f"{len(text) + len(suffix)} characters stand around the cursor, and at most {MAX_TEXT} are parsed"
        raise RequestRefusedError(400, f"suffix: {found}. Send less.", param="suffix", code="context_length_exceeded")


def _invalid(field: str, problem: str) -> RequestRefusedError:
    return RequestRefusedError(400, f"{field}: {problem}.", param=field, code="invalid_value")


class Completions:
    """The completions of one request."""

    def __init__(
        self,
        queue: GenerationQueue,
        request: GenerationRequest,
        selector: Selector,
        note: Callable[[GenerationRequest, GenerationResult], None],
    ) -> None:
        """Put them into the queue; `note` takes each result that the client gets.

        Raises:
            RequestRefusedError: The model is not loaded, or too many wait already.
        """
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._request, self._selector, self._note = request, selector, note

        def new_completion(number: int) -> PendingCompletion:
            def listen(event: Event) -> None:
                loop.call_soon_threadsafe(self._events.put_nowait, (number, event))

            return PendingCompletion(request, number, listen)

        self._all = [new_completion(number) for number in range(max(request.num_completions, request.best_of or 1))]
        queue.submit(self._all)

    async def events(self) -> AsyncIterator[tuple[int, Piece | GenerationResult]]:
        """Yield each event of the completions with the completion's number, until all have ended.

        Of a completion that is chosen from several nothing comes before all of these have ended.

        Raises:
            RequestRefusedError: One of them fails; of those to choose from, all of them.
        """
        if self._request.is_chosen:
            result = await self._choose()
            self._note(self._request, result)
            yield 0, Piece(result.text, result.tokens)
            yield 0, result
            return
        num_open = len(self._all)
        while num_open:
            number, event = await self._events.get()
            if isinstance(event, Failed):
                raise event.why
            if isinstance(event, GenerationResult):
                num_open -= 1
                self._note(self._request, event)
            yield number, event

    async def collect(self, request: Request) -> list[GenerationResult]:
        """Return the results, in the order of their numbers.

        Raises:
            RequestRefusedError: One of the completions fails, or the client went away.
        """

        async def collect() -> list[GenerationResult]:
            results = {number: event async for number, event in self.events() if isinstance(event, GenerationResult)}
            return [results[number] for number in sorted(results)]

        async def wait_for_end_of_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        collected, gone = asyncio.create_task(collect()), asyncio.create_task(wait_for_end_of_client())
        try:
            await asyncio.wait({collected, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise client_went_away()
            return collected.result()
        finally:
            collected.cancel()
            gone.cancel()
            self.cancel()

    def cancel(self) -> None:
        """End what has not ended yet."""
        for completion in self._all:
            completion.is_cancelled = True

    async def _choose(self) -> GenerationResult:
        """Return the best completion, with the figures of all of them."""
        results: dict[int, GenerationResult] = {}
        failures: list[Failed] = []
        while len(failures) + len(results) < len(self._all):
            number, event = await self._events.get()
            if isinstance(event, Failed):
                failures.append(event)
            elif isinstance(event, GenerationResult):
                results[number] = event
        if not results:
            raise failures[0].why
        ordered = [results[number] for number in sorted(results)]
        candidates = [SampledText(result.text, result.likelihood or 0.0) for result in ordered]
        return replace(
            ordered[await run_in_threadpool(self._place_of_best, candidates)],
            num_computed=sum(result.num_computed for result in ordered),
            prompt_seconds=max(result.prompt_seconds for result in ordered),
            seconds=max(result.seconds for result in ordered),
            best_of=len(ordered),
        )

    def _place_of_best(self, candidates: Sequence[SampledText]) -> int:
        """Return the place of the completion to send."""
        request = self._request
        if request.suffix is not None:
            return choose_insert(request.text or "", request.suffix, candidates)
        asked = request.turns[-1].text
        return self._selector.choose(asked, Mode.SOURCE, candidates, request.deadline).place
