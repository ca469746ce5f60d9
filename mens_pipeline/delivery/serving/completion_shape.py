"""Text completions in OpenAI's format: requests, responses and streams."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

from fastapi.sse import format_sse_event
from pydantic import Field, StrictInt, model_validator

from mens_pipeline.delivery.serving.answering import Answering, Asked, Outcome
from mens_pipeline.delivery.serving.asking import Listing, Wish
from mens_pipeline.delivery.serving.body import without_idle
from mens_pipeline.delivery.serving.openai_shape import (
    IGNORED,
    TextRequest,
    event_of,
    mistakes_of_stream_and_stops,
    usage,
)
from mens_pipeline.delivery.serving.refusal import RequestRefusedError
from mens_pipeline.delivery.serving.reply import Drawn, Piece
from mens_pipeline.delivery.serving.served_model import ServedModel
from mens_pipeline.delivery.serving.token_shape import MOST_IN_TEXTS, of_text

PATH: Final = "/v1/completions"

Ids = Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(fail_fast=True, max_length=1_000_000)]

_USUAL_TOKENS: Final = 16
"""Of an answer where a request does not say; as OpenAI has it."""

_IDLE: Final[dict[str, tuple[Any, ...]]] = {
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0, 0.0),
    "logit_bias": (None, {}),
    "min_p": (None, 0, 0.0),
    "presence_penalty": (None, 0, 0.0),
    "stream_options": (None,),
    "suffix": (None, ""),
    "top_k": (None, 0, -1),
}
"""Parameters that are not supported, at the values that ask for nothing; clients send them along."""


class CompletionRequest(TextRequest):
    """A request for text completions."""

    prompt: str | Listing[str] | Ids | Listing[Ids] = Field(
        description="One text or the ids of its tokens, by itself or alone in a list."
    )
    logprobs: int | None = Field(default=None, ge=0, le=MOST_IN_TEXTS, description="Likeliest tokens of each place.")

    @model_validator(mode="before")
    @classmethod
    def _asks_for_nothing_else(cls, values: Any) -> Any:
        return without_idle(values, _IDLE, IGNORED)

    @model_validator(mode="after")
    def _holds_together(self) -> "CompletionRequest":
        mistakes = mistakes_of_stream_and_stops(self.stops, self.stream_options, is_streamed=bool(self.stream))
        if isinstance(self.prompt, list) and len(self.prompt) > 1 and not isinstance(self.prompt[0], int):
            mistakes.append(f"prompt: {len(self.prompt)} texts; send one a request")
        if not (self.text or self.ids):
            mistakes.append("prompt: empty; there is nothing to go on from")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

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
    def wish(self) -> Wish:
        """Decoding options of the request."""
        return Wish(
            model=self.model,
            turns=(),
            text=self.text,
            ids=self.ids,
            num_answers=self.n or 1,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            max_tokens=self.max_tokens or _USUAL_TOKENS,
            stop=self.stops,
            ignored=self.ignored,
            num_likeliest=self.logprobs,
        )


class CompletionAnswer:
    """The answer to one request."""

    def __init__(self, served: ServedModel, asked: Asked) -> None:
        self._asked = asked
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": served.fingerprint,
        }

    def whole(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Return the answer at once."""
        choices = [
            self._choice(number, "".join(out.texts), out.ended.reason if out.ended else None, out.tokens)
            for number, out in enumerate(outcomes)
        ]
        num_written = sum(outcome.ended.num_tokens for outcome in outcomes if outcome.ended)
        return {**self._head, "choices": choices, "usage": usage(self._asked, num_written)}

    async def stream(self, answering: Answering, *, has_usage: bool) -> AsyncIterator[bytes]:
        """Return the answer as events."""
        num_written = 0
        offsets = [0] * answering.num_answers
        try:
            async for number, event in answering.events():
                if isinstance(event, Piece):
                    choice = self._choice(number, event.text, None, event.tokens, offsets[number])
                    offsets[number] += sum(len(token.text) for token in event.tokens)
                else:
                    num_written += event.num_tokens
                    choice = self._choice(number, "", event.reason)
                yield event_of({**self._head, "choices": [choice]})
        except RequestRefusedError as error:
            yield event_of(error.document(PATH))
            return
        if has_usage:
            yield event_of({**self._head, "choices": [], "usage": usage(self._asked, num_written)})
        yield format_sse_event(data_str="[DONE]")

    def _choice(
        self, number: int, text: str, reason: str | None, tokens: Sequence[Drawn] = (), offset: int = 0
    ) -> dict[str, Any]:
        is_told = self._asked.num_likeliest is not None and (tokens or text)
        told = of_text(tokens, offset) if is_told else None
        return {"index": number, "text": text, "logprobs": told, "finish_reason": reason}
