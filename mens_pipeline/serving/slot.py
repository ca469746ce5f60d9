"""One completion that is generated for a client: its pieces as they become certain, and its end.

A small model that does not end its turn repeats itself up to the limit. A constrained completion ends when it contains
all names in the prompt, or declares a name twice; at the timeout, its valid beginning is sent.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from mens_pipeline.evaluation.judge import errors_beside
from mens_pipeline.inference.constraint import CONTROL, BegunWord, Constraint, InsertConstraint
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generation import Syntax, is_program, program_in
from mens_pipeline.inference.sampling import Sampler, likeliest, log_probabilities
from mens_pipeline.language import Mode, analyze, complete, name_of, tokenize
from mens_pipeline.language.ast import Import
from mens_pipeline.models.infill import split_word
from mens_pipeline.serving.generation import GenerationResult, PendingCompletion, Piece, ScoredToken, TextStream

if TYPE_CHECKING:
    import torch

    from mens_pipeline.serving.queue import Loaded

_ENDS: Final = frozenset("}\n")
_PATIENCE: Final = 8  # tokens between checks for a piece that runs on; `} else {` fits again after fewer
_ENTRY: Final = re.compile(r"^\}\s*\Z", re.MULTILINE)
_NAME: Final = re.compile(r"`(\w+)`")


@dataclass(eq=False, kw_only=True)
class ServedSlot(Slot):
    """A completion of a request that sends its text as it becomes certain.

    `pieces` are its certain text, `unsent` its tokens since the last piece; times are on the monotonic clock. `cut` is
    why the server ended it. `runs_on` is True if, at the last check, it went on after the end of its block.
    """

    completion: PendingCompletion
    decode: Callable[[Sequence[int]], str]
    stream: TextStream
    begun: float
    pieces: list[Piece] = field(default_factory=list)
    unsent: list[ScoredToken] = field(default_factory=list)
    first_token: float = 0.0
    cut: Literal["repetition", "timeout"] | None = None
    runs_on: bool = False

    @property
    def is_cancelled(self) -> bool:
        """Whether the client no longer waits for it."""
        return self.completion.is_cancelled

    @property
    def is_checked(self) -> bool:
        """Whether it is a constrained piece at a cursor, which is sent only if it fits there."""
        return self.completion.request.around is not None and self.constraint is not None

    @property
    def is_given_up(self) -> bool:
        """Whether no piece at a cursor was found that can end there."""
        return self.is_checked and self.constraint is not None and self.constraint.is_forced

    @property
    def is_steered(self) -> bool:
        """Whether it must be a whole program, so that it may end as soon as it is one."""
        return self.completion.request.asked.suffix is None and self.constraint is not None

    @property
    def prompt_text(self) -> str:
        """The last message of a conversation."""
        turns = self.completion.request.asked.turns
        return turns[-1].text if turns else ""

    @property
    def is_held(self) -> bool:
        """Whether it may be withheld, so that no piece is sent before its end."""
        return self.is_checked or self.completion.request.threshold is not None

    def take(self, token: int, scores: "torch.Tensor", stop: frozenset[int]) -> None:
        """Add a token, and send the text that is now certain; the token that ends the turn has none."""
        if not self.tokens:
            self.first_token = time.monotonic()
        super().take(token, scores, stop)
        text = ""
        if token not in stop:
            self._describe(token, scores)
            text = self.stream.feed(token)
        if self.end is not None:
            text += self.stream.end()
        if self.completion.request.around is not None:
            text = CONTROL.sub("", text)
        if self.stream.is_stopped:
            self.end = "stop"
        if text or self.end is not None:
            self._send(text)
        if self.end is None and self.is_steered and not _ENDS.isdisjoint(text):
            self._end_runaway()
        if self.end is None and self.is_checked and len(self.tokens) % _PATIENCE == 0:
            self._end_overrun()

    def _send(self, text: str) -> None:
        if text or self.unsent:
            self.pieces.append(Piece(text, tuple(self.unsent)))
            self.unsent.clear()
            if not self.is_held:
                self.completion.listen(self.pieces[-1])

    def _end_runaway(self) -> None:
        if _declares_twice(self.text):
            self.end, self.cut = "length", "repetition"
        elif _ENTRY.search(self.text) and _NAME.search(self.prompt_text) and _is_complete(self.prompt_text, self.text):
            self.end = "stop"

    def _end_overrun(self) -> None:
        around, ran_on = self.completion.request.around, self.runs_on
        self.runs_on = around is not None and around.runs_on(around.indent(self.text))
        if ran_on and self.runs_on:
            self.end = "stop"

    def _describe(self, token: int, scores: "torch.Tensor") -> None:
        num = self.completion.request.asked.num_likeliest
        if num is not None and not self.stream.num_left_out:
            others = likeliest(scores, num) if num else ()
            texts = tuple((self.decode([other]), value) for other, value in others)
            (own,) = log_probabilities(scores[None], [token])
            self.unsent.append(ScoredToken(self.decode([token]), own, texts))

    @property
    def text(self) -> str:
        """Its certain text."""
        return "".join(piece.text for piece in self.pieces)

    def to_result(self) -> GenerationResult | None:
        """Return the result, with the brackets of an unfinished program closed; None if nothing can be sent in time."""
        closing: str | None = ""
        is_whole = self.end == "stop" or not self.is_steered
        cut = self.constraint.cut if self.is_steered and isinstance(self.constraint, Constraint) else None
        if self.end == "late":
            self.cut = "timeout"
        elif cut == "repetition":
            self.cut = cut
        if not is_whole and not is_program(self.text, Mode.SOURCE):
            closing = complete(self.text, Mode.SOURCE, is_strict=True) if self.text.strip() else None
        if self.end == "late" and (is_whole or closing is None):
            return None
        self._send("")
        if closing:
            self.completion.listen(Piece(closing))
        return GenerationResult(
            text=self.text + (closing or ""),
            tokens=() if closing else tuple(chain(*(piece.tokens for piece in self.pieces))),
            reason="stop" if self.end == "stop" and cut is None else "length",
            num_tokens=len(self.tokens),
            num_computed=len(self.tokens),
            prompt_seconds=self.first_token - self.begun,
            seconds=time.monotonic() - self.first_token,
            is_constrained=self.constraint is not None,
            likelihood=None if self.log_probability is None else self.log_probability / len(self.tokens),
            cut=self.cut,
        )


def _is_complete(asked: str, text: str) -> bool:
    program = program_in(text)
    words = {token.text for token in tokenize(program)}
    if not (words.issuperset(_NAME.findall(asked)) and is_program(text, Mode.SOURCE)):
        return False
    return not errors_beside("", program, Mode.SOURCE, frozenset())


def _declares_twice(text: str) -> bool:
    module = analyze(program_in(text)).module
    pairs = [(type(one), name_of(one)) for one in (module.declarations if module is not None else ())]
    named = [pair for pair in pairs if pair[1] is not None and pair[0] is not Import]
    return len(set(named)) < len(named)


def new_slot(loaded: "Loaded", completion: PendingCompletion) -> ServedSlot:
    """Return a slot for a new completion."""
    request, asked = completion.request, completion.request.asked
    room, is_constrained = request.max_tokens, request.syntax is Syntax.CONSTRAINED
    constraint: Constraint | InsertConstraint | None = None
    word = split_word(asked.text or "")[1] if request.around is not None else ""
    if word:
        room += len(loaded.tokenizer.encode(word, add_special_tokens=False))
    if is_constrained and request.around is not None:
        constraint = InsertConstraint(loaded.tokenizer, loaded.stop, request.around, begun=word, is_typed=True)
    elif is_constrained:
        constraint = Constraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, room)
    return ServedSlot(
        request.prompt,
        Sampler(request.temperature, request.top_p, f"{request.seed}:{completion.number}"),
        room,
        constraint,
        None if request.threshold is None and not request.is_chosen else 0.0,
        request.deadline,
        BegunWord(loaded.tokenizer, word) if word else None,
        num_after=request.num_after,
        completion=completion,
        decode=loaded.decode,
        stream=TextStream(loaded.decode, asked.stop, num_left_out=len(word)),
        begun=time.monotonic(),
    )
