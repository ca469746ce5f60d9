"""OpenAI's format: requests for chats and text completions, their responses, whole or streamed, and the model list."""

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from fastapi.sse import format_sse_event
from pydantic import BaseModel, Field, StrictInt, model_validator

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.models.chat import Turn
from mens_pipeline.serving.completions import Completions
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece, Token
from mens_pipeline.serving.http import (
    STRICT,
    Lenient,
    Listing,
    RequestRefusedError,
    TextRequest,
    find_turn_errors,
    read_grammar,
)
from mens_pipeline.serving.served_model import ServedModel

CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

MOST_IN_CHATS: Final = 20
MOST_IN_TEXTS: Final = 5
"""Likeliest tokens reported at a position at most, as OpenAI has it."""

_LEAST: Final = -9999.0
"""In place of minus infinity, which JSON cannot express."""
_HALF: Final = "\ufffd"

Ids = Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(fail_fast=True, max_length=1_000_000)]

_USUAL_TOKENS: Final = 16
"""Most tokens of a completion where the request does not say; as OpenAI has it."""
_TABBY_TOKENS: Final = 64
"""As Tabby has it, whose plugins never say."""

_IDLE_EVERYWHERE: Final[dict[str, tuple[Any, ...]]] = {
    "frequency_penalty": (None, 0, 0.0),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0, 0.0),
    "stream_options": (None,),
}
"""Parameters that are not supported, at the values that ask for nothing; clients send them along."""

_IDLE: Final[dict[str, tuple[Any, ...]]] = {
    **_IDLE_EVERYWHERE,
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "web_search_options": (None,),
}

IGNORED: Final = frozenset(
    {
        *("metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort"),
        *("safety_identifier", "service_tier", "store", "user", "verbosity"),
    }
)
"""Parameters that change nothing of a completion here, whatever they say; editors send them along."""

_IDLE_IN_MESSAGES: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}
"""Other fields of a message of this server, which a client may send back unchanged."""

_IDLE_IN_TEXTS: Final[dict[str, tuple[Any, ...]]] = {
    **_IDLE_EVERYWHERE,
    "echo": (None, False),
    "min_p": (None, 0, 0.0),
    "top_k": (None, 0, -1),
}


class _Text(BaseModel):
    model_config = STRICT

    type: Literal["text"]
    text: str


class _Message(Lenient):
    idle = _IDLE_IN_MESSAGES

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Listing[_Text]

    @property
    def turn(self) -> Turn:
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return Turn("system" if self.role == "developer" else self.role, text)


class ChatRequest(TextRequest):
    """A request for chat completions."""

    idle, harmless = _IDLE, IGNORED

    messages: Listing[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    decoding: Literal["free", "constrained", "fallback"] | None = Field(
        default=None, description="Ours: whether the parser constrains the tokens; `fallback` is `constrained`."
    )
    best_of: int | None = Field(default=None, ge=1, description="Ours in chats: answers of which one is chosen.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_CHATS)

    @model_validator(mode="before")
    @classmethod
    def _read_grammar(cls, values: Any) -> Any:
        return read_grammar(values)

    def find_errors(self) -> list[str]:
        """Return errors between fields, a phrase each."""
        errors = [*super().find_errors(), *find_turn_errors([message.turn for message in self.messages])]
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            errors.append("max_tokens and max_completion_tokens are one limit; leave one of them out")
        if self.top_logprobs is not None and not self.logprobs:
            errors.append("top_logprobs: only with logprobs")
        return errors

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it."""
        return GenerationRequest(
            model=self.model,
            turns=tuple(message.turn for message in self.messages),
            num_completions=self.n or 1,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            max_tokens=self.max_tokens or self.max_completion_tokens,
            stop=self.stops,
            syntax=None if self.decoding is None else Syntax(self.decoding),
            best_of=self.best_of,
            limit_field="max_completion_tokens" if self.max_completion_tokens else "max_tokens",
            ignored=self.ignored,
            num_likeliest=(self.top_logprobs or 0) if self.logprobs else None,
        )


class CompletionRequest(TextRequest):
    """A request for text completions."""

    idle, harmless = _IDLE_IN_TEXTS, IGNORED

    prompt: str | Listing[str] | Ids | Listing[Ids] = Field(
        description="One text or the ids of its tokens, by itself or alone in a list."
    )
    suffix: str | None = Field(default=None, description="What stands behind the cursor that the prompt ends at.")
    best_of: int | None = Field(default=None, ge=1, description="With a suffix: pieces of which one is chosen.")
    logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_TEXTS, description="Likeliest tokens of each place.")

    @model_validator(mode="before")
    @classmethod
    def _read_segments(cls, values: Any) -> Any:
        """Take a request of Tabby's plugins, which send both sides of the cursor as `segments` to the same path."""
        segments = values.get("segments") if isinstance(values, dict) else None
        if not isinstance(segments, dict):
            return values
        kept = {name: value for name, value in values.items() if name not in {"segments", "language"}}
        sides = {"prompt": segments.get("prefix"), "suffix": segments.get("suffix") or "\n"}
        return {"max_tokens": _TABBY_TOKENS, **kept, **sides}

    @classmethod
    def is_at_cursor(cls, values: Mapping[str, Any]) -> bool:
        """Whether a suffix came along."""
        return bool(values.get("suffix"))

    def find_errors(self) -> list[str]:
        """Return errors between fields, a phrase each."""
        errors = super().find_errors()
        if isinstance(self.prompt, list) and len(self.prompt) > 1 and not isinstance(self.prompt[0], int):
            errors.append(f"prompt: {len(self.prompt)} texts; send one a request")
        if self.suffix and self.ids:
            errors.append("suffix: only with a prompt that is a text")
        if not (self.text or self.ids or self.suffix):
            errors.append("prompt: empty; there is nothing to go on from")
        return errors

    @property
    def text(self) -> str:
        """Text to be continued; empty where its ids were sent."""
        found = self.prompt if isinstance(self.prompt, str) else next(iter(self.prompt), "")
        return found if isinstance(found, str) else ""

    @property
    def ids(self) -> tuple[int, ...]:
        """Tokens to be continued; none where they were sent as a text."""
        first = self.prompt[0] if isinstance(self.prompt, list) and self.prompt else ""
        found = self.prompt if isinstance(first, int) else first
        return tuple(token for token in found if isinstance(token, int))

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it."""
        return GenerationRequest(
            model=self.model,
            text=self.text,
            suffix=self.suffix or None,
            ids=self.ids,
            num_completions=self.n or 1,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            max_tokens=self.max_tokens or _USUAL_TOKENS,
            stop=self.stops,
            best_of=self.best_of,
            ignored=self.ignored,
            num_likeliest=self.logprobs,
        )


class _Response(ABC):
    """The response to one request, as one document or as server-sent events."""

    _path: ClassVar[str]
    _prefix: ClassVar[str]
    _kind: ClassVar[str]
    _kind_of_chunk: ClassVar[str]
    _open_usage: ClassVar[dict[str, None]] = {}
    """Fields of each chunk before the last one, where the client asked for the usage."""

    def __init__(self, served: ServedModel, request: GenerationRequest) -> None:
        self._request = request
        self._head = {
            "id": f"{self._prefix}-{request.id}",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }

    @abstractmethod
    def _choice(self, number: int, result: GenerationResult) -> dict[str, Any]:
        """Return a whole completion."""

    @abstractmethod
    def _chunk(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Return the choice of a chunk for an event of a completion."""

    def _openings(self) -> Iterable[dict[str, Any]]:
        """Return the choices of chunks that come before any text; only chats have some."""
        return ()

    def format_whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """Return the whole response as one document."""
        choices = [self._choice(number, result) for number, result in enumerate(results)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": self._usage(results)}

    async def format_stream(self, completions: Completions, *, has_usage: bool) -> AsyncIterator[bytes]:
        """Yield the response as server-sent events."""
        head = {**self._head, "object": self._kind_of_chunk}
        extra = self._open_usage if has_usage else {}
        results = list[GenerationResult]()
        for choice in self._openings():
            yield _format_event({**head, "choices": [choice], **extra})
        try:
            async for number, event in completions.events():
                results += [event] if isinstance(event, GenerationResult) else []
                yield _format_event({**head, "choices": [self._chunk(number, event)], **extra})
        except RequestRefusedError as error:
            yield _format_event(error.document(self._path))
            return
        if has_usage:
            yield _format_event({**head, "choices": [], "usage": self._usage(results)})
        yield format_sse_event(data_str="[DONE]")

    def _usage(self, results: Sequence[GenerationResult]) -> dict[str, int]:
        read, sent = len(self._request.prompt), sum(result.num_tokens for result in results)
        computed = sum(result.num_computed for result in results)
        usage = {"prompt_tokens": read, "completion_tokens": sent, "total_tokens": read + sent}
        return {**usage, "computed_tokens": computed}


class ChatResponse(_Response):
    """The response to a request for chat completions."""

    _path, _prefix = CHATS, "chatcmpl"
    _kind, _kind_of_chunk = "chat.completion", "chat.completion.chunk"
    _open_usage: ClassVar = {"usage": None}

    def _choice(self, number: int, result: GenerationResult) -> dict[str, Any]:
        message = {"role": "assistant", "content": result.text, "refusal": None}
        return {"index": number, "message": message, **self._end(result.tokens, result)}

    def _openings(self) -> Iterable[dict[str, Any]]:
        delta = {"role": "assistant", "content": ""}
        numbers = range(self._request.num_completions)
        return ({"index": number, "delta": delta, **self._end(None, None)} for number in numbers)

    def _chunk(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        if isinstance(event, GenerationResult):
            return {"index": number, "delta": {}, **self._end(None, event)}
        return {"index": number, "delta": {"content": event.text}, **self._end(event.tokens or None, None)}

    def _end(self, tokens: Sequence[Token] | None, result: GenerationResult | None) -> dict[str, Any]:
        """Return tokens and end; what `GenerationResult.details` holds is not part of OpenAI's format."""
        has_tokens = self._request.num_likeliest is not None and tokens is not None
        end: dict[str, Any] = {
            "logprobs": format_chat_tokens(tokens or ()) if has_tokens else None,
            "finish_reason": None,
        }
        if result is None:
            return end
        return {**end, "finish_reason": result.reason, **result.details}


class CompletionResponse(_Response):
    """The response to a request for text completions."""

    _path, _prefix = COMPLETIONS, "cmpl"
    _kind = _kind_of_chunk = "text_completion"

    def __init__(self, served: ServedModel, request: GenerationRequest) -> None:
        super().__init__(served, request)
        self._offsets = Counter[int]()

    def _choice(self, number: int, result: GenerationResult) -> dict[str, Any]:
        return {**self._format_choice(number, result.text, result.tokens, result.reason), **result.details}

    def _chunk(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        if isinstance(event, GenerationResult):
            return {**self._format_choice(number, "", (), event.reason), **event.details}
        choice = self._format_choice(number, event.text, event.tokens, None)
        self._offsets[number] += sum(len(token.text) for token in event.tokens)
        return choice

    def _format_choice(self, number: int, text: str, tokens: Sequence[Token], reason: str | None) -> dict[str, Any]:
        has_tokens = self._request.num_likeliest is not None and (tokens or text)
        logprobs = format_text_tokens(tokens, self._offsets[number]) if has_tokens else None
        return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _format_event(document: dict[str, Any]) -> bytes:
    return format_sse_event(data_str=json.dumps(document, ensure_ascii=False))


def format_chat_tokens(tokens: Sequence[Token]) -> dict[str, Any]:
    """Format tokens as chats have them."""
    described = [
        (_format_token(t.text, t.log_probability), [_format_token(*other) for other in t.others]) for t in tokens
    ]
    return {"content": [{**token, "top_logprobs": others} for token, others in described], "refusal": None}


def format_text_tokens(tokens: Sequence[Token], offset: int) -> dict[str, Any]:
    """Format tokens as text completions have them; `offset` characters of the completion come before."""
    ends = [offset]
    for token in tokens:
        ends.append(ends[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_number(token.log_probability) for token in tokens],
        # Halves of characters look alike; the likelier one, which comes first, is told.
        "top_logprobs": [{text: _number(value) for text, value in reversed(token.others)} for token in tokens],
        "text_offset": ends[:-1],
    }


def _format_token(text: str, log_probability: float) -> dict[str, Any]:
    # The bytes of half a character are not known from its text.
    known = None if _HALF in text else list(text.encode())
    return {"token": text, "logprob": _number(log_probability), "bytes": known}


def _number(log_probability: float) -> float:
    return max(log_probability, _LEAST)


def model_card(served: ServedModel, name: str) -> dict[str, Any]:
    """Return the entry of a model in OpenAI's list of models."""
    return {"id": name, "object": "model", "created": served.created_unix, "owned_by": "mens-pipeline"}
