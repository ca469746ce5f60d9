"""One completion that is being written for a client: its pieces as they become certain, and where it is to end.

A small model that does not end its turn repeats itself up to the limit. What the parser has a say in is ended when it
has all that was asked for by name, or begins to repeat itself; and at the timeout what stands of it is sent.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from mens_pipeline.corpus.schema.prompts import mentioned_names
from mens_pipeline.evaluation.judge import errors_beside
from mens_pipeline.inference.begun_word import BegunWord
from mens_pipeline.inference.constraint import Constraint, repeats_itself
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generation import Syntax, is_program, program_in
from mens_pipeline.inference.insert_constraint import InsertConstraint
from mens_pipeline.inference.sampling import Sampler, likeliest, log_probability
from mens_pipeline.language import Mode, analyze, complete, name_of, tokenize
from mens_pipeline.language.ast import Import
from mens_pipeline.models.infill import split_word
from mens_pipeline.serving.generation import GenerationResult, PendingCompletion, Piece, TextStream, Token

if TYPE_CHECKING:
    import torch

    from mens_pipeline.serving.queue import Loaded

_LEAST_ROOM: Final = 64
"""Tokens of a second try, where the limit has as many: what closes a program takes up to forty."""
_MOST_PARTS: Final = 16
"""Ends of declarations at which a completion that was cut is looked at, the last ones first."""
_ENDS: Final = frozenset("}\n")
_ENTRY: Final = re.compile(r"^\}\s*\Z", re.MULTILINE)
"""The end of a declaration, at the end of a text."""
_BETWEEN: Final = re.compile(r"\n(?=[^\s}]|\Z)|\Z")
"""Between two declarations, and at the end."""
_NAME: Final = re.compile(r"`(\w+)`")


@dataclass(eq=False, kw_only=True)
class ServedSlot(Slot):
    """A completion of a request, which passes on its text as it becomes certain.

    Attributes:
        decode: Tokens -> text.
        begun: When it took its slot, on the monotonic clock.
        num_before: Tokens of a first try that was no program.
        pieces: What has become certain of it, in order.
        unsent: Tokens since the last piece.
        first_token: When it came, on the monotonic clock.
        lengths: Characters that were certain behind each token.
        cut: Why it was ended from outside, where it was.
    """

    completion: PendingCompletion
    decode: Callable[[Sequence[int]], str]
    stream: TextStream
    begun: float
    num_before: int = 0
    pieces: list[Piece] = field(default_factory=list)
    unsent: list[Token] = field(default_factory=list)
    first_token: float = 0.0
    lengths: list[int] = field(default_factory=list)
    cut: Literal["repetition", "timeout"] | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.completion.is_cancelled

    @property
    def is_first_try(self) -> bool:
        """Whether it is generated again, constrained, if it is no program."""
        return self.completion.request.syntax is Syntax.FALLBACK and self.constraint is None

    @property
    def is_second_try(self) -> bool:
        """Whether it is a second try at a cursor, which is sent only if it stands there."""
        return self.completion.request.suffix is not None and self.constraint is not None

    @property
    def is_steered(self) -> bool:
        """Whether it is to be a program that stands for itself, so that it may be ended where it is one."""
        request = self.completion.request
        return request.syntax is not Syntax.FREE and request.suffix is None

    @property
    def prompt_text(self) -> str:
        """The prompt of a conversation."""
        turns = self.completion.request.turns
        return turns[-1].text if turns else ""

    @property
    def is_held(self) -> bool:
        """Whether it may be generated again or withheld; until that is known, no piece is sent."""
        return self.is_first_try or self.is_second_try or self.completion.request.threshold is not None

    def take(self, token: int, scores: "torch.Tensor", stop: frozenset[int]) -> None:
        """Write a token, and pass on the text that it makes certain; the one that ends the turn has none."""
        if not self.tokens:
            self._note_first_token()
        super().take(token, scores, stop)
        text = ""
        if token not in stop:
            self._describe(token, scores)
            text = self.stream.feed(token)
        if self.end is not None:
            text += self.stream.end()
        if self.stream.is_stopped:
            self.end = "stop"
        if text or self.end is not None:
            self._pass_on(text)
        self.lengths.append((self.lengths[-1] if self.lengths else 0) + len(text))
        if self.end is None and self.is_steered and not _ENDS.isdisjoint(text):
            self._end_runaway()

    def _pass_on(self, text: str) -> None:
        """Make a piece of a text and the tokens since the last one, unless there is neither."""
        if text or self.unsent:
            self.pieces.append(Piece(text, tuple(self.unsent)))
            self.unsent.clear()
            if not self.is_held:
                self.completion.listen(self.pieces[-1])

    def _note_first_token(self) -> None:
        """Note when it comes; from then on a first try of a program leaves half of the time to a second one.

        It keeps all of it where half of what is left is too short to read the prompt once more.
        """
        self.first_token = time.monotonic()
        half = (self.deadline - self.first_token) / 2
        if self.is_first_try and self.is_steered and half > self.first_token - self.begun:
            self.deadline = self.first_token + half

    def _end_runaway(self) -> None:
        """End it where it begins to repeat itself, or has all that was asked for by name."""
        if self.constraint is None and (repeats_itself(self.text) or _declares_twice(self.text)):
            self.end, self.cut = "length", "repetition"
        elif _ENTRY.search(self.text) and _names_in(self.prompt_text) and _is_complete(self.prompt_text, self.text):
            self.end = "stop"

    def _describe(self, token: int, scores: "torch.Tensor") -> None:
        """Note a token and the most likely ones at its position, where the request asks for them.

        Tokens of a word that stands before the cursor are none of the piece.
        """
        num = self.completion.request.num_likeliest
        if num is not None and not self.stream.num_left_out:
            others = likeliest(scores, num) if num else ()
            texts = tuple((self.decode([other]), value) for other, value in others)
            self.unsent.append(Token(self.decode([token]), log_probability(scores, token), texts))

    @property
    def text(self) -> str:
        """What is certain of it."""
        return "".join(piece.text for piece in self.pieces)

    def to_result(self) -> GenerationResult | None:
        """Return what is sent: all of it, or what stands where it was ended from outside; None where nothing does."""
        text, is_whole = self.text, self.end == "stop" or not self.is_steered
        if self.end == "late":
            self.cut = "timeout"
        if not is_whole and (self.cut == "repetition" or not is_program(text, Mode.SOURCE)):
            text = self._standing()
        if self.end == "late" and (is_whole or not text):
            return None
        self._pass_on("")
        if not self.is_held:
            text = text or self.text  # what was sent counts, though nothing of it stands
            if len(text) > len(self.text):
                self.completion.listen(Piece(text[len(self.text) :]))
        return GenerationResult(
            text=text,
            tokens=tuple(chain(*(piece.tokens for piece in self.pieces))) if text == self.text else (),
            reason="stop" if self.end == "stop" else "length",
            num_tokens=len(self.tokens)
            if len(text) >= len(self.text)
            else bisect_left(self.lengths, len(text)) + bool(text),
            num_computed=self.num_before + len(self.tokens),
            prompt_seconds=self.first_token - self.begun,
            seconds=time.monotonic() - self.first_token,
            is_constrained=self.constraint is not None,
            likelihood=None if self.log_probability is None else self.log_probability / len(self.tokens),
            cut=self.cut,
        )

    def _standing(self) -> str:
        """Return its longest part that is an answer; under the constraint it is closed the shortest way."""
        if self.constraint is not None:
            closing = complete(self.text, Mode.SOURCE, is_strict=True)
            return self.text + closing if closing is not None and self.text.strip() else ""
        ends = [match.start() for match in _BETWEEN.finditer(self.text)]
        parts = (self.text[:end] for end in ends[: -_MOST_PARTS - 1 : -1])
        there = frozenset(mentioned_names(self.prompt_text))
        sound = (part for part in parts if _is_complete(self.prompt_text, part, there) and not _declares_twice(part))
        return next(sound, "")


def _names_in(asked: str) -> frozenset[str]:
    return frozenset(_NAME.findall(asked))


def _is_complete(asked: str, text: str, there: frozenset[str] = frozenset()) -> bool:
    """Return whether a text is a program that has all names in backticks of a prompt, and lacks none that it uses.

    Names of `there` are declared elsewhere.
    """
    program = program_in(text)
    words = {token.text for token in tokenize(program)}
    if not (_names_in(asked) <= words and is_program(text, Mode.SOURCE)):
        return False
    return not errors_beside("", program, Mode.SOURCE, there)


def _declares_twice(text: str) -> bool:
    """Return whether a program declares two things of one kind and name."""
    module = analyze(program_in(text)).module
    some = [(type(one), name_of(one)) for one in (module.declarations if module is not None else ())]
    named = [pair for pair in some if pair[1] is not None and pair[0] is not Import]
    return len(set(named)) < len(named)


def new_slot(
    loaded: "Loaded", completion: PendingCompletion, *, is_constrained: bool, num_before: int = 0
) -> ServedSlot:
    """Return a completion that has not begun; limits of tokens and time are those of the request, for both its tries.

    A second try of a program has the tokens that the first one left: a third of the limit and enough to close a program
    at least.
    """
    request = completion.request
    most = request.max_tokens or 0
    room = max(most - num_before, most // 3, min(most, _LEAST_ROOM)) if request.suffix is None else most
    constraint: Constraint | InsertConstraint | None = None
    prefix, word = split_word(request.text or "") if request.suffix is not None else ("", "")
    if word:
        room += len(loaded.tokenizer.encode(word, add_special_tokens=False))
    if is_constrained and request.suffix is not None:
        around = (prefix, request.suffix)
        constraint = InsertConstraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, *around, begun=word, is_typed=True)
    elif is_constrained:
        constraint = Constraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, room, names=request.names)
    return ServedSlot(
        request.prompt,
        Sampler(request.temperature or 0.0, request.top_p or 1.0, f"{request.seed}:{completion.number}"),
        room,
        constraint,
        None if request.threshold is None and not request.is_chosen else 0.0,
        request.deadline,
        BegunWord(loaded.tokenizer, word) if word else None,
        completion=completion,
        decode=loaded.decode,
        stream=TextStream(loaded.decode, request.stop, num_left_out=len(word)),
        begun=time.monotonic(),
        num_before=num_before,
    )
