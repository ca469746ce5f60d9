"""The answers to one request on the side of the server: asked for together, awaited, and given up together."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from fastapi import Request

from mens_pipeline.delivery.serving.engine import Engine, Limits
from mens_pipeline.delivery.serving.refusal import nobody_listens
from mens_pipeline.delivery.serving.reply import Ended, Event, Failed, Piece, Reply
from mens_pipeline.evaluation.sampling import Syntax


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks for.

    Attributes:
        prompt: The ids that are given.
        num_answers: How many answers.
        temperature: 0: always the most likely token.
        top_p: Share of probability that is sampled from.
        seed: What the draws depend on.
        max_new_tokens: Tokens of an answer at most.
        stop: Texts that end an answer, and are no part of it.
        syntax: Whether the parser steers it.
        warnings: What of the request was not done as it was asked for, in words.
    """

    prompt: tuple[int, ...]
    num_answers: int
    temperature: float
    top_p: float
    seed: int
    max_new_tokens: int
    stop: tuple[str, ...]
    syntax: Syntax
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcome:
    """A complete answer.

    Attributes:
        texts: Its pieces.
        ended: How it ended.
    """

    texts: list[str] = field(default_factory=list)
    ended: Ended | None = None


class Answering:
    """The answers to one request."""

    def __init__(self, engine: Engine, limits: Limits, asked: Asked) -> None:
        """Ask for them.

        Args:
            engine: Writes them.
            limits: How long they may take.
            asked: What is asked for.

        Raises:
            RequestRefusedError: The model is not there, or too many wait already.
        """
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        deadline = time.monotonic() + limits.timeout

        def reply(number: int) -> Reply:
            def listen(event: Event) -> None:
                loop.call_soon_threadsafe(self._events.put_nowait, (number, event))

            return Reply(
                prompt=asked.prompt,
                temperature=asked.temperature,
                top_p=asked.top_p,
                start=f"{asked.seed}:{number}",
                max_new_tokens=asked.max_new_tokens,
                stop=asked.stop,
                deadline=deadline,
                listen=listen,
                syntax=asked.syntax,
            )

        self.replies: Sequence[Reply] = tuple(map(reply, range(asked.num_answers)))
        engine.submit(self.replies)

    async def events(self) -> AsyncIterator[tuple[int, Piece | Ended]]:
        """What becomes of the answers, each with its number, until all have ended.

        Raises:
            RequestRefusedError: One of them does not come to its end.
        """
        num_open = len(self.replies)
        while num_open:
            number, event = await self._events.get()
            if isinstance(event, Failed):
                raise event.why
            num_open -= isinstance(event, Ended)
            yield number, event

    async def complete(self, request: Request) -> tuple[Outcome, ...]:
        """All answers as a whole.

        Args:
            request: Its client may go away; then nothing is written any more.

        Raises:
            RequestRefusedError: One of them does not come to its end, or nobody waits for them.
        """
        collected = asyncio.create_task(self._collected())
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({collected, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise nobody_listens()
            return collected.result()
        finally:
            collected.cancel()
            gone.cancel()
            self.leave()

    def leave(self) -> None:
        """Wait for nothing any more; what has not ended is not written to its end."""
        for reply in self.replies:
            reply.is_gone = True

    async def _collected(self) -> tuple[Outcome, ...]:
        outcomes = tuple(Outcome() for _ in self.replies)
        async for number, event in self.events():
            if isinstance(event, Piece):
                outcomes[number].texts.append(event.text)
            else:
                outcomes[number].ended = event
        return outcomes


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
