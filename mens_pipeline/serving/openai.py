"""OpenAI's format: requests for chats and text completions, their responses, whole or streamed, and the model list."""

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from fastapi.sse import format_sse_event
from pydantic import BaseModel, Field, StrictInt, model_validator

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.models.chat import Turn
from mens_pipeline.models.infill import has_marks
from mens_pipeline.serving.completions import ClientResponse
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece, PreparedRequest, ScoredToken
from mens_pipeline.serving.http import MOST_STOPS, STRICT, Lenient, Listing, find_turn_errors, list_stops
from mens_pipeline.serving.served_model import ServedModel

CHATS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

MOST_IN_CHATS: Final = 20
MOST_IN_TEXTS: Final = 5
"""Most likely tokens to report at each position; OpenAI's limits."""

_LEAST: Final = -9999.0  # in place of minus infinity, which JSON cannot express
_HALF: Final = "\ufffd"

Ids = Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(fail_fast=True, max_length=1_000_000)]

_USUAL_TOKENS: Final = 16  # OpenAI's default for `max_tokens` of a text completion
_TABBY_TOKENS: Final = 64  # Tabby's default; its plugins never send one

_IDLE_EVERYWHERE: Final[dict[str, tuple[Any, ...]]] = {
    "frequency_penalty": (None, 0, 0.0),
    "logit_bias": (None, {}),
    "min_p": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
    "stream_options": (None,),
    "top_k": (None, 0, -1),
}
"""Unsupported parameter -> values without effect, which clients send anyway."""

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
        *("safety_identifier", "service_tier", "store", "user", "verbosity", "xtc_probability"),
        *("cache_prompt", "dynatemp_range", "frequency_penalty", "id_slot", "min_p", "mirostat", "n_probs"),
        *("presence_penalty", "repeat_penalty", "repetition_penalty", "samplers", "top_k", "typical_p"),
    }
)
"""Parameters for accounts, sampling and caches that have no effect here; clients send them anyway."""

_IDLE_IN_MESSAGES: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}
"""Fields of a message of this server, which a client may send back unchanged."""

_IDLE_IN_TEXTS: Final[dict[str, tuple[Any, ...]]] = {
    **_IDLE_EVERYWHERE,
    "echo": (None, False),
}


OURS: Final = "vox"
"""The name of the grammar, accepted in place of its text."""

_GRAMMAR_FIELDS: Final = ("response_format", "structured_outputs", "guided_grammar", "grammar")
_IDLE_FORMAT: Final = {"type": "text"}
_ADVICE: Final = f'Send "{OURS}", or the output of `mens grammar` of this version.'


def read_grammar(values: Any) -> Any:
    """Translate the grammar fields of a request to `decoding`.

    vLLM calls the field `guided_grammar` or `structured_outputs`, llama.cpp `grammar`; `response_format` may be of type
    `grammar`. Each accepts the name or the whole text of the grammar. `ValueError` for another grammar or form of
    completion, or if `decoding` contradicts them.
    """
    if not isinstance(values, dict):
        return values
    asked = {name: _find_grammar(name, values[name]) for name in _GRAMMAR_FIELDS if values.get(name) is not None}
    kept = {name: value for name, value in values.items() if name not in _GRAMMAR_FIELDS}
    for name, grammar in asked.items():
        if grammar is not None and not (isinstance(grammar, str) and grammar.strip() in _own_grammars()):
            raise ValueError(f"{name}: not the Vox grammar, the only one that this server supports. {_ADVICE}")
    if any(grammar is not None for grammar in asked.values()):
        if kept.get("decoding") == Syntax.FREE:
            raise ValueError("decoding: free, but a grammar is requested; leave one of them out")
        return {**kept, "decoding": kept.get("decoding") or str(Syntax.CONSTRAINED)}
    return kept


def _find_grammar(name: str, value: Any) -> Any:
    if name in {"guided_grammar", "grammar"}:
        return value or None
    if name == "response_format" and value == _IDLE_FORMAT:
        return None
    if name == "response_format" and (not isinstance(value, dict) or value.get("type") != "grammar"):
        raise ValueError('response_format: completions are Vox programs; use the type "text" or "grammar"')
    if not isinstance(value, dict) or value.keys() - {"type"} != {"grammar"}:
        raise ValueError(f'{name}: only "grammar" is supported. {_ADVICE}')
    return value["grammar"]


@cache
def _own_grammars() -> frozenset[str]:
    return frozenset((OURS, *(grammar_text(notation).strip() for notation in GrammarFormat)))


class StreamOptions(Lenient):
    """Options of a streamed response."""

    idle: ClassVar = {"include_obfuscation": (None, False)}

    include_usage: bool = False


class TextRequest(Lenient):
    """Fields that requests for chats and for text completions share."""

    model: str = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: str | Listing[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignored: tuple[str, ...] = Field(default=(), description="Fields that were dropped; never sent by a client.")

    @property
    def is_streamed(self) -> bool:
        """Whether the response comes piece by piece."""
        return bool(self.stream)

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def _to_generation(self, **fields: Any) -> GenerationRequest:
        return GenerationRequest(
            model=self.model,
            num_completions=self.n or 1,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=list_stops(self.stop),
            ignored=self.ignored,
            **fields,
        )

    def find_errors(self) -> list[str]:
        """List errors in combinations of fields, one phrase each."""
        errors: list[str] = []
        if self.stream_options is not None and not self.stream:
            errors.append("stream_options: only allowed with stream")
        stops = list_stops(self.stop)
        is_at_cursor = self.is_at_cursor(self.model_dump(include={"prompt", "suffix"}))
        if not all(stops) or (len(stops) > MOST_STOPS and not is_at_cursor):
            errors.append(f"stop: at most {MOST_STOPS} texts, none of them empty")
        return errors

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if errors := self.find_errors():
            raise ValueError("; ".join(errors))
        return self


class _Text(BaseModel):
    model_config = STRICT

    type: Literal["text"]
    text: str


class _ChatMessage(Lenient):
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

    messages: Listing[_ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    decoding: Literal["free", "constrained", "fallback"] | None = Field(
        default=None, description="Our extension: whether the parser constrains tokens; `fallback` means `constrained`."
    )
    best_of: int | None = Field(
        default=None, ge=1, description="Our extension in chats: number of candidates; the best is returned."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_CHATS)

    @model_validator(mode="before")
    @classmethod
    def _read_grammar(cls, values: Any) -> Any:
        return read_grammar(values)

    def find_errors(self) -> list[str]:
        """List errors in combinations of fields, one phrase each."""
        errors = [*super().find_errors(), *find_turn_errors([message.turn for message in self.messages])]
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            errors.append("max_tokens and max_completion_tokens set the same limit; leave one of them out")
        if self.top_logprobs is not None and not self.logprobs:
            errors.append("top_logprobs: only allowed with logprobs")
        return errors

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue."""
        return self._to_generation(
            turns=tuple(message.turn for message in self.messages),
            max_tokens=self.max_tokens or self.max_completion_tokens,
            syntax=None if self.decoding is None else Syntax(self.decoding),
            best_of=self.best_of,
            limit_field="max_completion_tokens" if self.max_completion_tokens else "max_tokens",
            num_likeliest=(self.top_logprobs or 0) if self.logprobs else None,
        )

    def to_response(self, served: ServedModel, request: PreparedRequest) -> "ChatResponse":
        """Return the formatter of the response."""
        return ChatResponse(served, request, has_usage=self.has_usage)


class CompletionRequest(TextRequest):
    """A request for text completions."""

    idle, harmless = _IDLE_IN_TEXTS, IGNORED

    prompt: str | Listing[str] | Ids | Listing[Ids] = Field(
        description="One text or the ids of its tokens, alone or in a list of one."
    )
    suffix: str | None = Field(default=None, description="Text after the cursor at the end of the prompt.")
    best_of: int | None = Field(
        default=None, ge=1, description="With a suffix: number of candidates; the best is returned."
    )
    logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_TEXTS, description="Most likely tokens per position.")

    @model_validator(mode="before")
    @classmethod
    def _read_segments(cls, values: Any) -> Any:
        segments = values.get("segments") if isinstance(values, dict) else None
        if not isinstance(segments, dict):
            return values
        kept = {name: value for name, value in values.items() if name not in {"segments", "language"}}
        sides = {"prompt": segments.get("prefix"), "suffix": segments.get("suffix") or "\n"}
        return {"max_tokens": _TABBY_TOKENS, **kept, **sides}

    @classmethod
    def is_at_cursor(cls, values: Mapping[str, Any]) -> bool:
        """Return whether there is a suffix, or the prompt has the marks of a cursor."""
        prompt = values.get("prompt")
        return bool(values.get("suffix")) or (isinstance(prompt, str) and has_marks(prompt))

    def find_errors(self) -> list[str]:
        """List errors in combinations of fields, one phrase each."""
        errors = super().find_errors()
        if isinstance(self.prompt, list) and len(self.prompt) > 1 and not isinstance(self.prompt[0], int):
            errors.append(f"prompt: {len(self.prompt)} texts; send one per request")
        if self.suffix and self.ids:
            errors.append("suffix: only allowed with a text prompt")
        if not (self.text or self.ids or self.suffix):
            errors.append("prompt: empty; send text to continue")
        return errors

    @property
    def text(self) -> str:
        """Text to continue; empty if its ids were sent."""
        found = self.prompt if isinstance(self.prompt, str) else next(iter(self.prompt), "")
        return found if isinstance(found, str) else ""

    @property
    def ids(self) -> tuple[int, ...]:
        """Tokens to continue; empty if a text was sent."""
        first = self.prompt[0] if isinstance(self.prompt, list) and self.prompt else ""
        found = self.prompt if isinstance(first, int) else first
        return tuple(token for token in found if isinstance(token, int))

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue."""
        return self._to_generation(
            text=self.text,
            suffix=self.suffix or None,
            ids=self.ids,
            max_tokens=self.max_tokens or _USUAL_TOKENS,
            best_of=self.best_of,
            num_likeliest=self.logprobs,
        )

    def to_response(self, served: ServedModel, request: PreparedRequest) -> "CompletionResponse":
        """Return the formatter of the response."""
        return CompletionResponse(served, request, has_usage=self.has_usage)


class _Response(ClientResponse):
    _prefix: ClassVar[str]
    _kind: ClassVar[str]
    _kind_of_chunk: ClassVar[str]
    _open_usage: ClassVar[dict[str, None]] = {}
    """Fields of each chunk before the last one, if the client requested the usage."""

    def __init__(self, served: ServedModel, request: PreparedRequest, *, has_usage: bool = False) -> None:
        self._request = request
        self._has_usage = has_usage
        self._head = {
            "id": f"{self._prefix}-{request.asked.id}",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }

    @abstractmethod
    def _format_choice(self, number: int, result: GenerationResult) -> dict[str, Any]: ...

    @abstractmethod
    def _format_delta(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Format the choice of a chunk."""

    def format_whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        choices = [self._format_choice(number, result) for number, result in enumerate(results)]
        return {**self._head, "object": self._kind, "choices": choices, "usage": self._count_usage(results)}

    def format_event(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        return self._format_chunk([self._format_delta(number, event)], self._open_usage if self._has_usage else {})

    def encode_end(self, results: Sequence[GenerationResult]) -> Iterable[bytes]:
        if self._has_usage:
            yield self.encode(self._format_chunk([], {"usage": self._count_usage(results)}))
        yield format_sse_event(data_str="[DONE]")

    def _format_chunk(self, choices: list[dict[str, Any]], extra: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self._kind_of_chunk, "choices": choices, **extra}

    def _count_usage(self, results: Sequence[GenerationResult]) -> dict[str, int]:
        read, sent = len(self._request.prompt), sum(result.num_tokens for result in results)
        usage = {"prompt_tokens": read, "completion_tokens": sent, "total_tokens": read + sent}
        return {**usage, "computed_tokens": sum(result.num_computed for result in results)}


class ChatResponse(_Response):
    """The response to a request for chat completions."""

    path, _prefix = CHATS, "chatcmpl"
    _kind, _kind_of_chunk = "chat.completion", "chat.completion.chunk"
    _open_usage: ClassVar = {"usage": None}

    def format_opening(self) -> Iterable[dict[str, Any]]:
        """Format the role of each completion."""
        delta = {"role": "assistant", "content": ""}
        extra = self._open_usage if self._has_usage else {}
        for number in range(self._request.asked.num_completions):
            yield self._format_chunk([{"index": number, "delta": delta, **self._format_end(None, None)}], extra)

    def _format_choice(self, number: int, result: GenerationResult) -> dict[str, Any]:
        message = {"role": "assistant", "content": result.text, "refusal": None}
        return {"index": number, "message": message, **self._format_end(result.tokens, result)}

    def _format_delta(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        if isinstance(event, GenerationResult):
            return {"index": number, "delta": {}, **self._format_end(None, event)}
        return {"index": number, "delta": {"content": event.text}, **self._format_end(event.tokens or None, None)}

    def _format_end(self, tokens: Sequence[ScoredToken] | None, result: GenerationResult | None) -> dict[str, Any]:
        has_tokens = self._request.asked.num_likeliest is not None and tokens is not None
        end: dict[str, Any] = {
            "logprobs": format_chat_tokens(tokens or ()) if has_tokens else None,
            "finish_reason": None,
        }
        return end if result is None else {**end, "finish_reason": result.reason, **result.details}


class CompletionResponse(_Response):
    """The response to a request for text completions."""

    path, _prefix = COMPLETIONS, "cmpl"
    _kind = _kind_of_chunk = "text_completion"

    def __init__(self, served: ServedModel, request: PreparedRequest, *, has_usage: bool = False) -> None:
        super().__init__(served, request, has_usage=has_usage)
        self._offsets = Counter[int]()

    def _format_choice(self, number: int, result: GenerationResult) -> dict[str, Any]:
        return {**self._format_text(number, result.text, result.tokens, result.reason), **result.details}

    def _format_delta(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        if isinstance(event, GenerationResult):
            return {**self._format_text(number, "", (), event.reason), **event.details}
        choice = self._format_text(number, event.text, event.tokens, None)
        self._offsets[number] += sum(len(token.text) for token in event.tokens)
        return choice

    def _format_text(self, number: int, text: str, tokens: Sequence[ScoredToken], reason: str | None) -> dict[str, Any]:
        has_tokens = self._request.asked.num_likeliest is not None and (tokens or text)
        logprobs = format_text_tokens(tokens, self._offsets[number]) if has_tokens else None
        return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}


def format_chat_tokens(tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    """Format tokens as in chat completions."""
    described = [
        (_format_token(t.text, t.log_probability), [_format_token(*other) for other in t.others]) for t in tokens
    ]
    return {"content": [{**token, "top_logprobs": others} for token, others in described], "refusal": None}


def format_text_tokens(tokens: Sequence[ScoredToken], offset: int) -> dict[str, Any]:
    """Format tokens as in text completions, after `offset` characters of the completion."""
    ends = [offset]
    for token in tokens:
        ends.append(ends[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_to_finite(token.log_probability) for token in tokens],
        # Halves of characters share a text; the likelier one, which comes first, must win.
        "top_logprobs": [{text: _to_finite(value) for text, value in reversed(token.others)} for token in tokens],
        "text_offset": ends[:-1],
    }


def _format_token(text: str, log_probability: float) -> dict[str, Any]:
    # The text of half a character does not determine its bytes.
    known = None if _HALF in text else list(text.encode())
    return {"token": text, "logprob": _to_finite(log_probability), "bytes": known}


def _to_finite(log_probability: float) -> float:
    return max(log_probability, _LEAST)


def model_card(served: ServedModel, name: str) -> dict[str, Any]:
    """Return the entry of a model in OpenAI's list of models."""
    return {"id": name, "object": "model", "created": served.created_unix, "owned_by": "mens-pipeline"}
