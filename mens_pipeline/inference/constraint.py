"""Constraints on the next token: for a program, for a piece at a cursor, and for the word before the cursor.

`Constraint` tries the most likely token, then the next one if no program starts with the resulting text. The result
equals a mask over the whole vocabulary, at little more than the cost of one token. Near the limit, a token must also
leave room to close the program, so every completion ends as one. Small models repeat themselves until cut off, so no
token may end the third equal statement in a row (`would_run_away`); the third such token closes the program.

`InsertConstraint` accepts a token if prefix and piece together can still become a program. It accepts the end only if
prefix, piece and suffix are a program or, in an editor, may become one with more typing (`Surroundings.accept`). It
gives up the piece if the most likely tokens lead to no such end.

`BegunWord` heals tokens: half a word has other tokens than the whole word, so a model that reads `retu` has never seen
its continuation. Instead, the model reads the text before the word, and must spell the word first (as in guidance and
in the `token healing` example of llama.cpp).
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language import Mode, ParserPlace, Viability, ViableText, complete, has_tokens, tokenize
from mens_pipeline.language.surroundings import Surroundings
from mens_pipeline.models.chat import encode_plain

if TYPE_CHECKING:
    import torch

_OPENED: Final = 20  # upper limit of the tokens that one token adds to the shortest way to the end
_SPARE: Final = 40
"""Added once to that limit: `workflow` adds 34 tokens, because a version may follow it."""
_MOST_TRIES: Final = 256  # tokens to try before taking the shortest way to the end of a program
_MOST_SEARCHES: Final = 16
"""Most searches for a way to the end at one position, if every result needs more room than is left."""
CONTROL: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""A control character, which means nothing in Vox and is never sent to an editor."""
_REPLACEMENT: Final = "\ufffd"  # the decoded text of a token that holds a part of a character
_LETTER: Final = "\u00e9"  # stands for any such character
_SHORTEST: Final = "\nimport q"  # turns blanks and comments, which declare nothing, into a program
_CLOSED_BY: Final = {"(": ")", "[": "]", "{": "}"}
_TELLING: Final = frozenset(",}\n([{")  # characters that open a block or end an entry
_MOST_ALIKE: Final = 2  # allowed number of equal statements, fields or openers in a row
_MOST_ELEMENTS: Final = 8
"""The same for elements in parentheses and brackets, and for entries of a single token."""
_LONGEST_TURN: Final = 3  # entries that may alternate
_LONGEST_PERIOD: Final = 64
_SHORTEST_RUN: Final = 160  # characters: rulers of comments are shorter
_LOOKED_BACK: Final = 2_000
"""Last characters to search for repetitions, so that a long text costs no more."""
_DEEPEST: Final = 40  # open blocks; the parser's time for a token grows with them
_MOST_REFUSALS: Final = 2  # positions at which a runaway token is refused before the program is closed
_MOST_CLOSINGS: Final = 10_000
_CLOSINGS: Final[dict[ParserPlace, str]] = {}
"""State of the parser -> the end of a program, found by any completion of this process."""
_FENCE: Final = "```"
"""Refused, since `program_in` would extract the text between two fences as the program."""
_MOST_PIECE_TRIES: Final = 160  # tokens to try for one piece, including accepted ones
_MOST_READ: Final = 120_000
"""Characters to parse for one piece; an unfinished statement is parsed again for each token."""
_WHOLE_SHARE: Final = 4
"""Parsing a text is this many times faster per character than finding its possible continuations."""


@dataclass(slots=True)
class _Block:
    opener: str
    entries: list[list[str]] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return [*chain.from_iterable(self.entries), *self.entry]


def would_run_away(text: str, piece: str) -> bool:
    """Check whether a text and a piece together repeat themselves too often in a row, or open too many blocks.

    The third occurrence is too many for statements, fields and openers of nested blocks, alone or alternating with up
    to two others. The ninth is too many in parentheses and brackets, where equal elements are common, for entries of a
    single token, and for characters.

    Source:
        Repetition in generated code is structural: RPG, ACL 2025.
    """
    if _TELLING.isdisjoint(piece):
        return _ends_periodically(text + piece)
    if len(text) > _LOOKED_BACK:
        text = text[text.find("\n", -_LOOKED_BACK) :]
    blocks = [_Block("{")]
    for token in tokenize(text + piece):
        if token.is_trivia:
            continue
        is_end, is_opener = _read(token.text, blocks, is_line_end=token.kind == "NL"), token.text in _CLOSED_BY
        if token.end > len(text) and ((is_end and _repeats(blocks[-1])) or (is_opener and _nests_alike(blocks))):
            return True
    return _ends_periodically(text + piece)


def _read(word: str, blocks: list[_Block], *, is_line_end: bool) -> bool:
    block, is_end = blocks[-1], word == "," or (is_line_end and blocks[-1].opener == "{")
    if word in _CLOSED_BY:
        block.entry.append(word)
        blocks.append(_Block(word))
    elif len(blocks) > 1 and word == _CLOSED_BY[block.opener]:
        blocks.pop()
        blocks[-1].entry += [*block.words, word]
        is_end = block.opener == blocks[-1].opener == "{"
    elif not (is_end or is_line_end):
        block.entry.append(word)
    if is_end and blocks[-1].entry:
        blocks[-1].entries.append(blocks[-1].entry)
        blocks[-1].entry = []
    return is_end


def _repeats(block: _Block) -> bool:
    return _ends_alike(block.entries, _MOST_ALIKE if block.opener == "{" else _MOST_ELEMENTS)


def _nests_alike(blocks: list[_Block]) -> bool:
    heads = [block.words for block in blocks[:-1]]
    return len(heads) > _DEEPEST or _ends_alike(heads, _MOST_ALIKE, is_nested=True)


def _ends_alike(entries: list[list[str]], most: int, *, is_nested: bool = False) -> bool:
    """Check whether the last 1 to 3 entries occur more than `most` times in a row; a nest may start in an entry."""
    for length in range(1, _LONGEST_TURN + 1):
        turn = entries[-length:]
        times = 1 + (most if any(len(entry) > 1 for entry in turn) else _MOST_ELEMENTS)
        last = entries[-length * times :]
        if is_nested and last:
            last[0] = last[0][-len(turn[0]) :]
        if len(last) == length * times and last == turn * times:
            return True
    return False


def _ends_periodically(text: str) -> bool:
    for period in range(1, _LONGEST_PERIOD + 1):
        run = text[-max(_SHORTEST_RUN, period * (_MOST_ELEMENTS + 1)) :]
        if len(run) >= _SHORTEST_RUN and run[period:] == run[:-period]:
            return True
    return False


class Constraint:
    """The program that a completion has written so far, and the tokens that may follow it.

    `is_forced` is True once the shortest way to the end is being written. `cut` is the reason, other than syntax, to
    override a choice of the model.
    """

    def __init__(self, tokenizer: Any, stop: frozenset[int], mode: Mode, max_new_tokens: int) -> None:
        """Start with the empty program; `max_new_tokens` includes the token of `stop` that ends the completion."""
        self._tokenizer = tokenizer
        self._stop = stop
        self._mode = mode
        self._left = max_new_tokens
        self._room_from = max_new_tokens
        self._window: list[int] = []
        self._read = ""
        self._text = ""
        self._viable = ViableText(mode, is_strict=True)
        self._closing: list[int] | None = None
        self._closings: dict[ParserPlace, str] = {}
        self._is_whole = True
        self._num_searches = 0
        self._ran_away_at = set[int]()
        self.is_forced = False
        self.cut: Literal["limit", "repetition"] | None = None

    def choose(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        """Choose the next token from the scores of the whole vocabulary, of shape `(tokens,)`."""
        token = self._next_forced() if self.is_forced else self._draw(scores, sampler)
        self._take(token)
        return token

    def _draw(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        refused: list[int] = []
        self._num_searches = 0
        while len(refused) < _MOST_TRIES and self._num_searches < _MOST_SEARCHES and self.cut != "repetition":
            token = sampler.choose(scores, refused)
            if self._may_follow(token):
                return token
            refused.append(token)
            if len(self._ran_away_at) > _MOST_REFUSALS:
                self.cut = "repetition"
        self.is_forced, self.cut = True, self.cut or "limit"
        self._closing = self._find_closing("")
        return self._next_forced()

    def _next_forced(self) -> int:
        return self._closing.pop(0) if self._closing else min(self._stop)

    def _may_follow(self, token: int) -> bool:
        if token in self._stop:
            is_program = self._viable.viability is Viability.COMPLETE and self._viable.has_tokens
            return self._is_whole and is_program
        text = self._decode_after(token)
        piece = text.removeprefix(self._read)
        if not text.startswith(self._read) or not piece or _FENCE in self._text[1 - len(_FENCE) :] + piece:
            return False
        # The bytes of half a character decode to one replacement, invalid bytes to more.
        piece = piece.removesuffix(_REPLACEMENT) + (_LETTER if piece.endswith(_REPLACEMENT) else "")
        if _REPLACEMENT in piece or self._viable.would_be(piece) is Viability.DEAD:
            return False
        if would_run_away(self._text, piece):
            self._ran_away_at.add(self._left)
            return False
        return self._left > self._room_from or self._leaves_room(piece)

    def _leaves_room(self, piece: str) -> bool:
        """Check whether enough tokens are left to close the program after a piece, and set when to check again."""
        self._num_searches += 1
        closing = self._known_closing(piece) or self._find_closing(piece)
        # The token itself and the one that ends the completion also need room.
        if closing is None or len(closing) + 2 > self._left:
            self.cut = "limit"
            return False
        self._room_from = (len(closing) + 2 + _SPARE + _OPENED * self._left) // (_OPENED + 1)
        return True

    def _take(self, token: int) -> None:
        self._left -= 1
        if token in self._stop:
            return
        text = self._decode_after(token)
        self._is_whole = not text.endswith(_REPLACEMENT)
        text = text.rstrip(_REPLACEMENT)
        piece = text.removeprefix(self._read)
        self._viable.append(piece)
        self._text += piece
        self._window, self._read = [*self._window, token], text
        if self._is_whole and _REPLACEMENT not in (alone := self._decode([token])):
            # Some decoders need the token before the next one.
            self._window, self._read = [token], alone

    def _decode_after(self, token: int) -> str:
        return self._decode([*self._window, token])

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _known_closing(self, piece: str) -> list[int] | None:
        place = self._viable.place_behind(piece)
        own = self._closings.get(place)
        rest = _CLOSINGS.get(place) if own is None else own
        if rest is None or self._viable.would_be(piece + rest) is not Viability.COMPLETE:
            return None
        closing = self._encode(rest)
        # A closing from another completion needs room to spare, or a completion would depend on the other requests.
        return closing if len(closing) + 2 + (_OPENED if own is None else 0) <= self._left else None

    def _find_closing(self, piece: str) -> list[int] | None:
        text = self._viable.unsettled + piece
        rest = complete(text, self._mode, is_strict=True)
        if rest is None:
            return None
        if not (self._viable.has_tokens or has_tokens(text + rest)):
            rest += _SHORTEST
        else:
            self._closings[place := self._viable.place_behind(piece)] = rest
            if len(_CLOSINGS) < _MOST_CLOSINGS:
                _CLOSINGS.setdefault(place, rest)
        return self._encode(rest)

    def _encode(self, text: str) -> list[int]:
        return encode_plain(self._tokenizer, text)


class InsertConstraint:
    """The piece that a completion has written at a cursor so far, and the tokens that may follow it."""

    def __init__(
        self,
        tokenizer: Any,
        stop: frozenset[int],
        around: Surroundings,
        *,
        begun: str = "",
        is_typed: bool = False,
    ) -> None:
        """Start with an empty piece, which must start with `begun`, the word at the end of the prefix.

        With `is_typed`, it may end wherever its surroundings accept it, else only if it completes the declaration.
        """
        self._tokenizer = tokenizer
        self._stop = stop
        self._around, self._begun, self._is_typed = around, begun, is_typed
        self._prefix = around.prefix.removesuffix(begun)
        self._num_tries = 0
        self._tokens: list[int] = []
        self._piece = ""
        self._viable = ViableText(around.mode)
        self._viable.append(self._prefix)
        self._num_read = 0
        self.is_forced = self._viable.viability is Viability.DEAD

    def choose(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        """Choose the next token; if none fits, end the piece and set `is_forced`."""
        refused: list[int] = []
        while not self.is_forced and self._num_tries < _MOST_PIECE_TRIES and self._num_read < _MOST_READ:
            self._num_tries += 1
            token = sampler.choose(scores, refused)
            if self._may_follow(token):
                self._take(token)
                return token
            refused.append(token)
        self.is_forced = True
        return min(self._stop)

    def _may_follow(self, token: int) -> bool:
        if token in self._stop:
            num_characters = len(self._prefix + self._piece + self._around.suffix)
            self._num_read += num_characters // _WHOLE_SHARE
            if self._begun.startswith(self._piece) and self._piece != self._begun:
                return False
            piece = self._piece.removeprefix(self._begun)
            is_complete = self._around.completes(piece)
            if is_complete or not self._is_typed:
                return is_complete
            self._num_read += num_characters
            return self._around.accept(piece)
        text = self._decode([*self._tokens, token])
        more = text.removeprefix(self._piece)
        if not text.startswith(self._piece) or not more or _REPLACEMENT in more or CONTROL.search(more):
            return False
        if not text.startswith(self._begun) and not self._begun.startswith(text):
            return False
        self._num_read += len(self._viable.unsettled)
        is_dead = self._viable.would_be(more) is Viability.DEAD
        return not is_dead and not would_run_away(self._prefix + self._piece, more)

    def _take(self, token: int) -> None:
        if token in self._stop:
            return
        self._tokens.append(token)
        text = self._decode(self._tokens)
        self._viable.append(text.removeprefix(self._piece))
        self._piece = text

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text


class Vocabulary:
    """Texts of a tokenizer's tokens, decoded after another token; special tokens have no text."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_ids)
        # Some decoders drop the leading blank of the first token.
        anchor = tokenizer.encode("a", add_special_tokens=False)[-1]
        ids = range(len(tokenizer))
        texts = tokenizer.batch_decode([[anchor, token] for token in ids])
        start = len(tokenizer.decode([anchor]))
        self._tokens: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for token, text in zip(ids, texts, strict=True):
            if token not in special and len(text) > start and _REPLACEMENT not in text:
                self._tokens[text[start]].append((text[start:], token))

    def find_fitting(self, text: str) -> dict[int, str]:
        """Return the tokens, with their texts, that are a prefix of a text or start with it."""
        return {
            token: piece for piece, token in self._tokens[text[0]] if piece.startswith(text) or text.startswith(piece)
        }


@lru_cache(maxsize=2)
def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """Return the texts of a tokenizer's tokens, cached."""
    return Vocabulary(tokenizer)


class BegunWord:
    """The part of the word before the cursor that a completion has yet to spell.

    `text` is the word with the blank before it. The completion starts with it; the piece leaves it out.
    """

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.text = text
        self._left = text
        self._vocabulary = read_vocabulary(tokenizer)
        self._fitting = self._vocabulary.find_fitting(text)

    def narrow(self, scores: "torch.Tensor") -> "torch.Tensor":
        """Return the scores, of shape `(tokens,)`, with minus infinity for tokens that do not fit."""
        if not self._left:
            return scores
        fitting = [*self._fitting]
        narrowed = scores.new_full(scores.shape, float("-inf"))
        narrowed[fitting] = scores[fitting]
        return narrowed

    def take(self, token: int) -> None:
        """Remove a written token from the rest of the word."""
        if self._left:
            self._left = self._left[len(self._fitting.get(token, "")) :]
            self._fitting = self._vocabulary.find_fitting(self._left) if self._left else {}
