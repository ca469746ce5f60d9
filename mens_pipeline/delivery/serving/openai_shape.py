"""Chat completions and model lists in OpenAI's format: requests, responses and streams."""

import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal

from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.delivery.serving.answering import Answering, Asked, Outcome
from mens_pipeline.delivery.serving.asking import MOST_STOPS, Listing, Wish
from mens_pipeline.delivery.serving.body import without_idle
from mens_pipeline.delivery.serving.grammar_field import with_grammar
from mens_pipeline.delivery.serving.refusal import RequestRefusedError
from mens_pipeline.delivery.serving.reply import Drawn, Ended, Piece
from mens_pipeline.delivery.serving.served_model import ServedModel
from mens_pipeline.delivery.serving.token_shape import MOST_IN_CHATS, of_chat
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.training.chat import Turn

PATH: Final = "/v1/chat/completions"

STRICT: Final = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
_IDLE: Final[dict[str, tuple[Any, ...]]] = {
    "audio": (None,),
    "frequency_penalty": (None, 0, 0.0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "presence_penalty": (None, 0, 0.0),
    "stream_options": (None,),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "web_search_options": (None,),
}
"""Parameters that are not supported, at the values that ask for nothing; clients send them along."""

IGNORED: Final = frozenset(
    {
        *("metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort"),
        *("safety_identifier", "service_tier", "store", "user", "verbosity"),
    }
)
"""Parameters that change nothing of an answer here, whatever they say; editors send them along."""

_IDLE_IN_MESSAGES: Final[dict[str, tuple[Any, ...]]] = {
    "annotations": (None, []),
    "audio": (None,),
    "function_call": (None,),
    "name": (None,),
    "refusal": (None,),
    "tool_calls": (None, []),
}
"""What an answer of this server holds besides, when a client sends it back as it is."""


class _Text(BaseModel):
    model_config = STRICT

    type: Literal["text"]
    text: str


class _Message(BaseModel):
    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Listing[_Text]

    @model_validator(mode="before")
    @classmethod
    def _says_nothing_else(cls, values: Any) -> Any:
        return without_idle(values, _IDLE_IN_MESSAGES)

    @property
    def turn(self) -> Turn:
        """As the model is shown it."""
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return Turn("system" if self.role == "developer" else self.role, text)


class StreamOptions(BaseModel):
    """Options of a streamed response."""

    model_config = STRICT

    include_usage: bool = False

    @model_validator(mode="before")
    @classmethod
    def _says_nothing_else(cls, values: Any) -> Any:
        return without_idle(values, {"include_obfuscation": (None, False)})


class TextRequest(BaseModel):
    """Fields that requests for chats and for text completions share."""

    model_config = STRICT

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: str | Listing[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignored: tuple[str, ...] = Field(default=(), description="Fields that were taken away; never what a client sends.")

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(TextRequest):
    """A request for chat completions."""

    messages: Listing[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    decoding: Literal["free", "constrained", "fallback"] | None = Field(
        default=None, description="Ours: whether the parser steers the answer."
    )
    best_of: int | None = Field(default=None, ge=1, description="Ours in chats: answers of which one is chosen.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_CHATS)

    @model_validator(mode="before")
    @classmethod
    def _asks_for_nothing_else(cls, values: Any) -> Any:
        return without_idle(with_grammar(values), _IDLE, IGNORED)

    @model_validator(mode="after")
    def _holds_together(self) -> "ChatRequest":
        mistakes = mistakes_of_stream_and_stops(self.stops, self.stream_options, is_streamed=bool(self.stream))
        turns = [message.turn for message in self.messages]
        mistakes += mistakes_of_turns(turns)
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            mistakes.append("max_tokens and max_completion_tokens are one limit; leave one of them out")
        if self.top_logprobs is not None and not self.logprobs:
            mistakes.append("top_logprobs: only with logprobs")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def wish(self) -> Wish:
        """Decoding options of the request."""
        return Wish(
            model=self.model,
            turns=tuple(message.turn for message in self.messages),
            num_answers=self.n or 1,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            max_tokens=self.max_tokens or self.max_completion_tokens,
            stop=self.stops,
            syntax=None if self.decoding is None else Syntax(self.decoding),
            best_of=self.best_of,
            token_field="max_completion_tokens" if self.max_completion_tokens else "max_tokens",
            ignored=self.ignored,
            num_likeliest=(self.top_logprobs or 0) if self.logprobs else None,
        )


class ChatAnswer:
    """The answer to one request."""

    def __init__(self, served: ServedModel, asked: Asked) -> None:
        self._asked = asked
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }

    def whole(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Return the whole response as one document."""
        choices = [
            {
                "index": number,
                "message": {"role": "assistant", "content": "".join(outcome.texts), "refusal": None},
                "logprobs": self._tokens(outcome.tokens),
                "finish_reason": outcome.ended.reason if outcome.ended else None,
                **_steered(outcome.ended),
            }
            for number, outcome in enumerate(outcomes)
        ]
        num_written = sum(outcome.ended.num_tokens for outcome in outcomes if outcome.ended)
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage(self._asked, num_written)}

    async def stream(self, answering: Answering, *, has_usage: bool) -> AsyncIterator[bytes]:
        """Yield the response as server-sent events."""
        extra: dict[str, Any] = {"usage": None} if has_usage else {}
        for number in range(answering.num_answers):
            yield self._chunk(number, {"role": "assistant", "content": ""}, extra)
        num_written = 0
        try:
            async for number, event in answering.events():
                if isinstance(event, Piece):
                    yield self._chunk(number, {"content": event.text}, extra, tokens=event.tokens)
                else:
                    num_written += event.num_tokens
                    yield self._chunk(number, {}, extra, ended=event)
        except RequestRefusedError as error:
            yield event_of(error.document(PATH))
            return
        if has_usage:
            head = {**self._head, "object": "chat.completion.chunk"}
            yield event_of({**head, "choices": [], "usage": usage(self._asked, num_written)})
        yield format_sse_event(data_str="[DONE]")

    def _tokens(self, tokens: Sequence[Drawn]) -> dict[str, Any] | None:
        return None if self._asked.num_likeliest is None else of_chat(tokens)

    def _chunk(
        self,
        number: int,
        delta: dict[str, str],
        extra: dict[str, Any],
        *,
        tokens: Sequence[Drawn] = (),
        ended: Ended | None = None,
    ) -> bytes:
        reason, told = ended.reason if ended else None, self._tokens(tokens) if tokens else None
        choice = {"index": number, "delta": delta, "logprobs": told, "finish_reason": reason, **_steered(ended)}
        return event_of({**self._head, "object": "chat.completion.chunk", "choices": [choice], **extra})


def usage(asked: Asked, num_written: int) -> dict[str, int]:
    """Count the tokens that a request took."""
    num_prompt = len(asked.prompt)
    return {"prompt_tokens": num_prompt, "completion_tokens": num_written, "total_tokens": num_prompt + num_written}


def mistakes_of_turns(turns: Sequence[Turn]) -> list[str]:
    """Return why a conversation cannot be answered, a phrase each; a last message of the assistant is gone on with."""
    mistakes = []
    if turns[-1].role == "system":
        mistakes.append("messages: the last one is of role system; it must be of role user, or assistant to go on with")
    if any(turn.role == "system" for turn in turns[1:]):
        mistakes.append("messages: a message of role system or developer may only come first")
    return mistakes


def mistakes_of_stream_and_stops(
    stops: Sequence[str], options: StreamOptions | None, *, is_streamed: bool
) -> list[str]:
    """Return mistakes that every request can make, a phrase each."""
    mistakes = []
    if options is not None and not is_streamed:
        mistakes.append("stream_options: only with stream")
    if not all(stops) or len(stops) > MOST_STOPS:
        mistakes.append(f"stop: at most {MOST_STOPS} texts, none of them empty")
    return mistakes


def _steered(ended: Ended | None) -> dict[str, str | int]:
    """Return whether the parser steered an answer, and of how many it was chosen; not part of OpenAI's format."""
    if ended is None:
        return {}
    chosen = {"best_of": ended.best_of} if ended.best_of > 1 else {}
    return {"decoding": "constrained" if ended.is_constrained else "free", **chosen}


def model_card(served: ServedModel, name: str) -> dict[str, Any]:
    """Return the entry of a model in OpenAI's list of models."""
    return {"id": name, "object": "model", "created": served.created_unix, "owned_by": "mens-pipeline"}


def event_of(document: dict[str, Any]) -> bytes:
    """Write a document as a server-sent event."""
    return format_sse_event(data_str=json.dumps(document, ensure_ascii=False))
