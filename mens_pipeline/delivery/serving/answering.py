"""The answers to one request on the side of the server: asked for together, awaited, and given up together."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from mens_pipeline.delivery.serving.engine import Engine, Limits
from mens_pipeline.delivery.serving.refusal import nobody_listens
from mens_pipeline.delivery.serving.reply import Drawn, Ended, Event, Failed, Piece, Reply
from mens_pipeline.evaluation.selection import Candidate, Selector
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language import Mode


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompt and decoding options of one request.

    Attributes:
        request: The last thing that was said, which examples are read from.
        best_of: Answers of which one is chosen; where it is more than 1, one answer is given.
        temperature: 0: always the most likely token.
        top_p: Share of probability that is sampled from.
        stop: Texts that end an answer, and are no part of it.
        names: Whether it then refuses members that a value has not.
        warnings: What of the request was not done as it was asked for, in words.
        num_likeliest: Most likely tokens that are told of each place; None: no tokens are told of.
    """

    request: str
    prompt: tuple[int, ...]
    num_answers: int
    best_of: int
    temperature: float
    top_p: float
    seed: int
    max_new_tokens: int
    stop: tuple[str, ...]
    syntax: Syntax
    names: bool = False
    warnings: tuple[str, ...] = ()
    num_likeliest: int | None = None


@dataclass(slots=True)
class Outcome:
    """A complete answer."""

    texts: list[str] = field(default_factory=list)
    tokens: list[Drawn] = field(default_factory=list)
    ended: Ended | None = None

    def take(self, event: Piece | Ended) -> None:
        """Note what has become of it."""
        if isinstance(event, Piece):
            self.texts.append(event.text)
            self.tokens += event.tokens
        else:
            self.ended = event


class Answering:
    """The answers to one request."""

    def __init__(self, engine: Engine, limits: Limits, asked: Asked, selector: Selector) -> None:
        """Ask for them.

        Raises:
            RequestRefusedError: The model is not there, or too many wait already.
        """
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        deadline = self._deadline = time.monotonic() + limits.timeout
        self._asked, self._selector = asked, selector
        self.num_answers = asked.num_answers

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
                names=asked.names,
                is_scored=asked.best_of > 1,
                num_likeliest=asked.num_likeliest,
            )

        self.replies: Sequence[Reply] = tuple(map(reply, range(max(asked.num_answers, asked.best_of))))
        engine.submit(self.replies)

    async def events(self) -> AsyncIterator[tuple[int, Piece | Ended]]:
        """Yield each event of the completions with the completion's number, until all have ended.

        Of an answer that is chosen from several nothing comes before all of these have ended.

        Raises:
            RequestRefusedError: One of them does not come to its end; of those to choose from, all of them.
        """
        if self._asked.best_of > 1:
            piece, ended = await self._chosen()
            yield 0, piece
            yield 0, ended
            return
        num_open = len(self.replies)
        while num_open:
            number, event = await self._events.get()
            if isinstance(event, Failed):
                raise event.why
            num_open -= isinstance(event, Ended)
            yield number, event

    async def complete(self, request: Request) -> tuple[Outcome, ...]:
        """All answers as a whole.

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

    async def _chosen(self) -> tuple[Piece, Ended]:
        """Return the best answer, with what all of them took."""
        outcomes = tuple(Outcome() for _ in self.replies)
        failures: list[Failed] = []
        while len(failures) + sum(outcome.ended is not None for outcome in outcomes) < len(outcomes):
            number, event = await self._events.get()
            if isinstance(event, Failed):
                failures.append(event)
            else:
                outcomes[number].take(event)
        whole = [
            (Piece("".join(outcome.texts), tuple(outcome.tokens)), outcome.ended)
            for outcome in outcomes
            if outcome.ended is not None
        ]
        if not whole:
            raise failures[0].why
        candidates = [Candidate(piece.text, ended.likelihood or 0.0) for piece, ended in whole]
        request = self._asked.request
        choice = await run_in_threadpool(self._selector.choose, request, Mode.SOURCE, candidates, self._deadline)
        piece, ended = whole[choice.place]
        ends = [ended for _, ended in whole]
        return piece, replace(
            ended,
            num_tokens=sum(end.num_tokens for end in ends),
            prompt_seconds=max(end.prompt_seconds for end in ends),
            seconds=max(end.seconds for end in ends),
            best_of=len(whole),
        )

    async def _collected(self) -> tuple[Outcome, ...]:
        outcomes = tuple(Outcome() for _ in range(self.num_answers))
        async for number, event in self.events():
            outcomes[number].take(event)
        return outcomes


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
