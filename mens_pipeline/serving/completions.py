"""Prepare a request for the queue; await, choose and cancel its completions; format them for a client."""

import asyncio
import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import format_sse_event

from mens_pipeline.evaluation.best_of import SampledText, Selector, choose_insert
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language import Mode
from mens_pipeline.language.surroundings import Surroundings, read_surroundings
from mens_pipeline.models.base import configuration_of
from mens_pipeline.models.chat import Tokenizer, Turn, encode_text, encode_turns
from mens_pipeline.models.infill import count_after, encode_infill_prompt, split_at_marks
from mens_pipeline.serving.generation import (
    Event,
    Failed,
    GenerationRequest,
    GenerationResult,
    PendingCompletion,
    Piece,
    PreparedRequest,
    Withheld,
)
from mens_pipeline.serving.http import MOST_STOPS, MOST_STOPS_AT_CURSOR, RequestRefusedError, client_went_away
from mens_pipeline.serving.queue import GenerationQueue, ServerLimits
from mens_pipeline.serving.served_model import ServedModel

_SEED_BITS: Final = 63
_CANDIDATE_TEMPERATURE: Final = 0.8
_CANDIDATE_TOP_P: Final = 0.95  # sampling of the candidates of best-of-n, unless a request sets it
_NOT_TAUGHT: Final = "the model was not trained for a suffix: it continues the prompt up to the end of the line"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for fields that a request leaves out.

    `best_of` is used if one completion is requested and sampled. `show_all` sends all pieces at a cursor that parse,
    even with wrong names or if the model is unsure.
    """

    syntax: Syntax
    best_of: int = 1
    show_all: bool = False


class RequestPreparer:
    """Checks requests to one model, and decides the fields that they leave open."""

    def __init__(self, served: ServedModel, tokenizer: Tokenizer, limits: ServerLimits, defaults: Defaults) -> None:
        self._defaults = defaults
        self._served = served
        self._tokenizer = tokenizer
        self._limits = limits
        self._at_once = f"is above the limit of {limits.max_concurrent} completions at once (--max-concurrent)"

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Tokenize a request, and decide its limits and sampling.

        Without a system message, the model gets the one from its training. Without a temperature, it decodes greedily,
        as in its evaluation; candidates of best-of-n are sampled. `RequestRefusedError` if the request names another
        model, its prompt is too long, or it asks for more than is allowed.
        """
        asked = _find_cursor(request)
        self._check(asked)
        warnings: list[str] = []
        around: Surroundings | None = None
        if asked.suffix is not None and self._served.infill_order is None:
            stop = tuple(dict.fromkeys((*asked.stop, "\n")))
            asked = replace(asked, text=asked.text or "\n", suffix=None, stop=stop, best_of=None)
            warnings.append(_NOT_TAUGHT)
        elif asked.suffix is not None:
            around = await run_in_threadpool(read_surroundings, asked.text or "", asked.suffix)
            if around.skipped:
                warnings.append(f"the parser skips {', '.join(around.skipped)}")
        prompt = await run_in_threadpool(self._encode, asked)
        best_of = self._count_candidates(asked)
        temperature, top_p = (_CANDIDATE_TEMPERATURE, _CANDIDATE_TOP_P) if best_of > 1 else (0.0, 1.0)
        max_tokens = self._limit_tokens(asked, len(prompt))
        return PreparedRequest(
            asked=asked,
            prompt=prompt,
            max_tokens=max_tokens,
            syntax=_choose_syntax(asked, self._defaults.syntax),
            seed=secrets.randbits(_SEED_BITS) if asked.seed is None else asked.seed,
            deadline=time.monotonic() + self._limits.timeout,
            temperature=temperature if asked.temperature is None else asked.temperature,
            top_p=top_p if asked.top_p is None else asked.top_p,
            best_of=best_of,
            around=around,
            num_after=0 if around is None else count_after(self._tokenizer, prompt),
            threshold=None if asked.suffix is None or self._defaults.show_all else self._served.infill_threshold,
            shows_errors=self._defaults.show_all,
            warnings=(*warnings, *self._find_warnings(asked, max_tokens)),
        )

    def _encode(self, asked: GenerationRequest) -> tuple[int, ...]:
        if asked.ids:
            config = configuration_of(self._served.evaluated.base_path)
            most = int(config.get("text_config", config)["vocab_size"])
            if max(asked.ids) >= most:
                raise _invalid("prompt", f"the id {max(asked.ids)} is not in the model's vocabulary of {most} tokens")
            return asked.ids
        if asked.text is None:
            system = () if asked.turns[0].role == "system" else (Turn("system", self._served.system_prompt),)
            return encode_turns(self._tokenizer, (*system, *asked.turns))
        window, order = self._served.infill_window, self._served.infill_order
        if asked.suffix is None or window is None or order is None:
            return encode_text(self._tokenizer, asked.text)
        return encode_infill_prompt(self._tokenizer, asked.text, asked.suffix, window, order)

    def check_name(self, name: str) -> None:
        """Check that a request names the model that is served; otherwise raise `RequestRefusedError`."""
        if name.removesuffix(":latest") not in self._served.names:
            message = f"The model `{name[:100]}` is not served here. Use {' or '.join(self._served.names)}."
            raise RequestRefusedError(404, message, param="model", code="model_not_found")

    def _count_candidates(self, request: GenerationRequest) -> int:
        if request.best_of is None:
            is_single = request.num_completions == 1 and request.temperature != 0 and not request.continues_text
            return self._defaults.best_of if is_single else 1
        error = None
        if request.best_of > self._limits.max_concurrent:
            error = f"{request.best_of} {self._at_once}"
        elif request.best_of > 1 and request.num_completions > 1:
            error = f"cannot be combined with n = {request.num_completions}; leave one of them out"
        elif request.best_of > 1 and request.continues_text and request.suffix is None:
            error = "not supported for completions that continue your text; leave it out"
        elif request.best_of > 1 and request.temperature == 0:
            error = "at temperature 0 all completions are identical; leave it out, or raise the temperature"
        if error is not None:
            raise _invalid("best_of", error)
        return request.best_of

    def _check(self, request: GenerationRequest) -> None:
        if request.model:
            self.check_name(request.model)
        if request.num_completions > self._limits.max_concurrent:
            raise _invalid("n", f"{request.num_completions} {self._at_once}")
        if request.continues_text and request.syntax not in {None, Syntax.FREE}:
            raise _invalid("decoding", "the parser cannot constrain a continuation of your text. Leave it out")
        if request.suffix is None and len(request.stop) > MOST_STOPS:
            raise _invalid("stop", f"{len(request.stop)} texts are above the limit of {MOST_STOPS}")

    def _limit_tokens(self, request: GenerationRequest, num_prompt: int) -> int:
        context, most = self._served.max_context, self._limits.max_new_tokens
        if num_prompt >= context:
            message = f"The prompt has {num_prompt} tokens, but the model's context is {context}. Send a shorter one."
            raise RequestRefusedError(400, message, param="messages", code="context_length_exceeded")
        return min(most if request.max_tokens is None else request.max_tokens, most, context - num_prompt)

    def _find_warnings(self, request: GenerationRequest, room: int) -> Iterator[str]:
        limit = " (--max-new-tokens)" if room == self._limits.max_new_tokens else ""
        if request.max_tokens is not None and request.max_tokens > room:
            yield f"{request.limit_field} {request.max_tokens} was reduced to {room}{limit}"
        if request.continues_text and request.suffix is None and self._defaults.syntax is not Syntax.FREE:
            yield "the parser does not constrain a continuation of your text"
        if request.ignored:
            yield f"ignored: {', '.join(request.ignored)}"


def _choose_syntax(request: GenerationRequest, default: Syntax) -> Syntax:
    """Choose whether the parser constrains a completion; it never does if the client sent the beginning.

    `fallback` constrains from the first token here: the result equals a free completion as long as that follows the
    syntax, tokens are streamed at once, and no completion is computed twice.
    """
    if request.continues_text and request.suffix is None:
        return Syntax.FREE
    wanted = default if request.syntax is None else request.syntax
    return Syntax.FREE if wanted is Syntax.FREE else Syntax.CONSTRAINED


def _find_cursor(request: GenerationRequest) -> GenerationRequest:
    try:
        cursor = None if request.suffix or request.text is None else split_at_marks(request.text)
    except ValueError as error:
        raise _invalid("prompt", f"{error}. Send the text after the cursor as `suffix`") from error
    if cursor is not None:
        request = replace(request, text=cursor[0], suffix=cursor[1])
    return request if request.suffix is None else replace(request, stop=request.stop[:MOST_STOPS_AT_CURSOR])


def _invalid(field: str, problem: str) -> RequestRefusedError:
    return RequestRefusedError(400, f"{field}: {problem}.", param=field, code="invalid_value")


_FINISHED: Final = GenerationResult("", (), "stop", 0, 0, 0.0, 0.0, is_constrained=True, withheld=Withheld.FINISHED)


class Completions:
    """The completions of one request."""

    def __init__(
        self,
        queue: GenerationQueue,
        request: PreparedRequest,
        selector: Selector,
        note: Callable[[GenerationRequest, GenerationResult], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._request, self._selector, self._note = request, selector, note

        def new_completion(number: int) -> PendingCompletion:
            def listen(event: Event) -> None:
                loop.call_soon_threadsafe(self._events.put_nowait, (number, event))

            return PendingCompletion(request, number, listen)

        self._all = [new_completion(number) for number in range(max(request.asked.num_completions, request.best_of))]
        if request.around is not None and request.around.is_finished and not request.shows_errors:
            for completion in self._all:
                self._events.put_nowait((completion.number, _FINISHED))
        else:
            queue.submit(self._all)

    async def events(self) -> AsyncIterator[tuple[int, Piece | GenerationResult]]:
        """Yield each event with the number of its completion, until all have ended.

        If one of several is chosen, its events come after all have ended. `RequestRefusedError` if a completion failed,
        or all candidates did.
        """
        if self._request.is_chosen:
            result = await self._choose()
            self._note(self._request.asked, result)
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
                self._note(self._request.asked, event)
            yield number, event

    async def collect(self, request: Request) -> list[GenerationResult]:
        """Return the results, in the order of their numbers; `RequestRefusedError` if one failed or the client left."""

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
        """End the completions that have not ended yet."""
        for completion in self._all:
            completion.is_cancelled = True

    async def _choose(self) -> GenerationResult:
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
            ordered[await run_in_threadpool(self._find_best, candidates)],
            num_computed=sum(result.num_computed for result in ordered),
            prompt_seconds=max(result.prompt_seconds for result in ordered),
            seconds=max(result.seconds for result in ordered),
            best_of=len(ordered),
        )

    def _find_best(self, candidates: Sequence[SampledText]) -> int:
        asked = self._request.asked
        if self._request.around is not None:
            return choose_insert(self._request.around, candidates)
        return self._selector.choose(asked.turns[-1].text, Mode.SOURCE, candidates, self._request.deadline).place


class ClientResponse(ABC):
    """Formats the completions of a request: as one document, or one for each event of a stream.

    `path` decides the format of an error in a stream.
    """

    path: ClassVar[str]
    media_type: ClassVar[str] = "text/event-stream"

    @abstractmethod
    def format_whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """Format the whole response; without results the client only announced its prompt."""

    @abstractmethod
    def format_event(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Format an event of the completion `number`."""

    def format_opening(self) -> Iterable[dict[str, Any]]:
        """Format the documents before the first event."""
        return ()

    def encode_end(self, _results: Sequence[GenerationResult]) -> Iterable[bytes]:
        """Encode the end of the stream, after the last event."""
        return ()

    @staticmethod
    def encode(document: dict[str, Any]) -> bytes:
        """Encode a document of a stream, by default as a server-sent event."""
        return format_sse_event(data_str=json.dumps(document, ensure_ascii=False))

    async def format_stream(self, completions: Completions) -> AsyncIterator[bytes]:
        """Yield the response piece by piece; a failure ends it with an error document."""
        results: list[GenerationResult] = []
        for document in self.format_opening():
            yield self.encode(document)
        try:
            async for number, event in completions.events():
                if isinstance(event, GenerationResult):
                    results.append(event)
                yield self.encode(self.format_event(number, event))
        except RequestRefusedError as error:
            yield self.encode(error.document(self.path))
            return
        for line in self.encode_end(results):
            yield line
