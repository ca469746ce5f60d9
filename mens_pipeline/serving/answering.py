"""From what a request says to its completions: prompt and options, asked for, awaited and given up together."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from mens_pipeline.evaluation.best_of import Candidate, Selector
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language import Mode
from mens_pipeline.models.base import configuration_of
from mens_pipeline.models.chat import Tokenizer, Turn, encode_text, encode_turns
from mens_pipeline.serving.body import MOST_STOPS, RequestRefusedError, nobody_listens
from mens_pipeline.serving.engine import Engine, Limits
from mens_pipeline.serving.reply import Drawn, Ended, Event, Failed, Piece, Reply
from mens_pipeline.serving.served_model import ServedModel

_SEED_BITS: Final = 63
_CANDIDATE_TEMPERATURE: Final = 0.8
_CANDIDATE_TOP_P: Final = 0.95
"""The temperature and top_p of the candidates of best-of-n, unless a request sets them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Decoding options that a request states; None where it states none.

    Attributes:
        syntax: Whether the parser steers them; None for what the server does by default.
        best_of: Answers of which one is chosen; None for what the server does by default.
        token_field: What the request calls `max_tokens`, for messages.
        text: What goes on as it stands, in place of a conversation.
        ids: The tokens of it, where the client sent those.
        ignored: Fields of the request that nothing heeds.
        num_likeliest: Most likely tokens to be told of each place; None: no tokens are told of.
    """

    model: str
    turns: Sequence[Turn]
    num_answers: int
    temperature: float | None
    top_p: float | None
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    syntax: Syntax | None = None
    best_of: int | None = None
    token_field: str = "max_tokens"  # noqa: S105 - the name of a field
    text: str | None = None
    ids: tuple[int, ...] = ()
    ignored: tuple[str, ...] = ()
    num_likeliest: int | None = None

    @property
    def goes_on(self) -> bool:
        """Whether an answer begins in the middle of a text of the client."""
        return self.text is not None or self.turns[-1].role == "assistant"


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


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for fields that a request leaves out; `best_of` where one answer is asked for and draws may differ."""

    syntax: Syntax
    best_of: int = 1
    names: bool = False


class Asker:
    """Makes questions to one model of what requests say."""

    def __init__(self, served: ServedModel, tokenizer: Tokenizer, limits: Limits, defaults: Defaults) -> None:
        self._defaults = defaults
        self._served = served
        self._tokenizer = tokenizer
        self._limits = limits
        self._at_once = f"{limits.max_concurrent} written at once (--max-concurrent)"

    async def asked(self, wish: Wish) -> Asked:
        """Return what the model is asked: prompt ids, limits and sampling.

        Without a system text the model is told what it was told in training. Without a temperature it answers as it
        was judged: always the most likely token; where one of several answers is chosen, these are drawn.

        Raises:
            RequestRefusedError: It is another model, the prompt is too long, or more is wanted than there may be.
        """
        self._check(wish)
        turns = tuple(wish.turns)
        if wish.ids:
            prompt = self._known(wish.ids)
        elif wish.text is not None:
            prompt = await run_in_threadpool(encode_text, self._tokenizer, wish.text)
        else:
            if turns[0].role != "system":
                turns = (Turn("system", self._served.system_prompt), *turns)
            prompt = await run_in_threadpool(encode_turns, self._tokenizer, turns)
        best_of = self._best_of(wish)
        temperature, top_p = (_CANDIDATE_TEMPERATURE, _CANDIDATE_TOP_P) if best_of > 1 else (0.0, 1.0)
        room = self._room(wish, len(prompt))
        return Asked(
            request=turns[-1].text if wish.text is None else wish.text,
            prompt=prompt,
            num_answers=wish.num_answers,
            best_of=best_of,
            temperature=temperature if wish.temperature is None else wish.temperature,
            top_p=top_p if wish.top_p is None else wish.top_p,
            seed=secrets.randbits(_SEED_BITS) if wish.seed is None else wish.seed,
            max_new_tokens=room,
            stop=wish.stop,
            # The parser reads an answer from its beginning, which the client has.
            syntax=Syntax.FREE if wish.goes_on else self._defaults.syntax if wish.syntax is None else wish.syntax,
            names=self._defaults.names,
            warnings=tuple(self._warnings(wish, room)),
            num_likeliest=wish.num_likeliest,
        )

    def _known(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        config = configuration_of(self._served.judged.base_path)
        most = int(config.get("text_config", config)["vocab_size"])
        if max(ids) >= most:
            message = f"prompt: the id {max(ids)} is none of the {most} tokens of the model."
            raise RequestRefusedError(400, message, param="prompt", code="invalid_value")
        return ids

    def check_name(self, name: str) -> None:
        """Check that a request means the model that is served.

        Raises:
            RequestRefusedError: It means another one.
        """
        if name.removesuffix(":latest") not in self._served.names:
            message = f"The model `{name[:100]}` is not served here. Ask for {' or '.join(self._served.names)}."
            raise RequestRefusedError(404, message, param="model", code="model_not_found")

    def _best_of(self, wish: Wish) -> int:
        """Return the number of answers of which one is chosen."""
        if wish.best_of is None:
            is_single = wish.num_answers == 1 and wish.temperature != 0 and not wish.goes_on
            return self._defaults.best_of if is_single else 1
        mistake = None
        if wish.best_of > self._limits.max_concurrent:
            mistake = f"{wish.best_of} answers are more than the {self._at_once}"
        elif wish.best_of > 1 and wish.num_answers > 1:
            mistake = f"one answer is chosen, and n asks for {wish.num_answers}; leave one of them out"
        elif wish.best_of > 1 and wish.goes_on:
            mistake = "answers that go on from a text of yours are not compared; leave it out"
        elif wish.best_of > 1 and wish.temperature == 0:
            mistake = "at a temperature of 0 all answers are the same; leave it out, or ask for one above 0"
        if mistake is not None:
            raise RequestRefusedError(400, f"best_of: {mistake}.", param="best_of", code="invalid_value")
        return wish.best_of

    def _check(self, wish: Wish) -> None:
        self.check_name(wish.model)
        if wish.num_answers > self._limits.max_concurrent:
            message = f"n: {wish.num_answers} answers are more than the {self._at_once}."
            raise RequestRefusedError(400, message, param="n", code="invalid_value")
        if wish.goes_on and wish.syntax not in {None, Syntax.FREE}:
            message = "decoding: the parser steers no answer that goes on from a text of yours. Leave it out."
            raise RequestRefusedError(400, message, param="decoding", code="invalid_value")
        if len(wish.stop) > MOST_STOPS:
            message = f"stop: {len(wish.stop)} texts are more than the {MOST_STOPS} that are looked for."
            raise RequestRefusedError(400, message, param="stop", code="invalid_value")

    def _room(self, wish: Wish, num_prompt: int) -> int:
        """Return how many tokens an answer may have."""
        context, most = self._served.max_context, self._limits.max_new_tokens
        if num_prompt >= context:
            message = f"The prompt has {num_prompt} tokens, the context of the model is {context}. Send a shorter one."
            raise RequestRefusedError(400, message, param="messages", code="context_length_exceeded")
        return min(most if wish.max_tokens is None else wish.max_tokens, most, context - num_prompt)

    def _warnings(self, wish: Wish, room: int) -> Iterator[str]:
        """Yield what of a request is not done as it was asked for."""
        limit = " (--max-new-tokens)" if room == self._limits.max_new_tokens else ""
        if wish.max_tokens is not None and wish.max_tokens > room:
            yield f"{wish.token_field} {wish.max_tokens} is more than there is room for; it is {room}{limit}"
        if wish.goes_on and self._defaults.syntax is not Syntax.FREE:
            yield "the parser steers no answer that goes on from a text of yours"
        if wish.ignored:
            yield f"ignored: {', '.join(wish.ignored)}"


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
        """Return all answers as a whole.

        Raises:
            RequestRefusedError: One of them does not come to its end, or nobody waits for them.
        """
        outcomes = tuple(Outcome() for _ in range(self.num_answers))

        async def collect() -> None:
            async for number, event in self.events():
                outcomes[number].take(event)

        async def wait_for_end_of_client() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        collected, gone = asyncio.create_task(collect()), asyncio.create_task(wait_for_end_of_client())
        try:
            await asyncio.wait({collected, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise nobody_listens()
            collected.result()
            return outcomes
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
        whole = [(Piece("".join(one.texts), tuple(one.tokens)), one.ended) for one in outcomes if one.ended is not None]
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
