"""Baselines for an adapter: the base with a language description and examples in its prompt, and an n-gram model.

The first stands for a user without a trained model, the second for an editor without a neural one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import Lane, TrainingPair, read_pairs
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.tasks import FewShot, Task, draw_tasks
from mens_pipeline.language import CONSTRUCTS, analyze, construct_of, tokenize
from mens_pipeline.language.ast import Declaration, Function, NamedType
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.store import digest_of

_NUM_EXAMPLES: Final = 5
_LONGEST: Final = 240
"""Most characters of an example, prompt and completion together; five examples are about 300 tokens."""
_LONGEST_DESCRIPTION: Final = 20_000


def build_few_shot(
    tasks: Sequence[Task], number: int | None, description: Path, train: Path, train_sha256: str
) -> FewShot | None:
    """Build the few-shot baseline: language description, examples from the train set, and a sample of the tasks.

    `number` limits the sample: None keeps all tasks, 0 returns None. `RefusedError` if the train set is missing, or its
    SHA-256 is not `train_sha256`; `ConfigurationError` if the description cannot be read.
    """
    if number == 0:
        return None
    text = _read(description)
    if not train.is_file() or digest_of(train) != train_sha256:
        found = "changed" if train.is_file() else "gone"
        advice = "Restore it, or set few_shot_tasks: 0 in config/evaluation.yaml."
        raise RefusedError(f"{train}: the train set of this run is {found}; examples are taken from it. {advice}")
    return FewShot(few_shot_prompt(text, examples_among(read_pairs(train))), draw_tasks(tasks, number))


def describe_language(description: Path) -> str:
    """Return the system prompt with the language description; `ConfigurationError` if it cannot be read."""
    return few_shot_prompt(_read(description), ())


def _read(description: Path) -> str:
    try:
        return read_regular(description, _LONGEST_DESCRIPTION).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{description}: {error}. Restore the description of the language.") from error


def few_shot_prompt(description: str, examples: Iterable[TrainingPair]) -> str:
    """Format the system prompt of the few-shot baseline: the language description, then solved examples."""
    solved = (f"Request: {row.prompt.strip()}\nAnswer:\n```vox\n{row.response.strip()}\n```" for row in examples)
    return "\n\n".join([SYSTEM_PROMPT, description.strip(), *solved])


def examples_among(rows: Iterable[TrainingPair]) -> tuple[TrainingPair, ...]:
    """Choose up to five short rows: two functions, preferably with tests, then a row of each most frequent construct.

    Repeat constructs if there are only a few. The same rows give the same examples.
    """
    short = [row for row in dict.fromkeys(rows) if _is_short(row)]
    short.sort(key=lambda row: (row.tests is None, row.digest))
    frequent = Counter(row.category for row in short)
    constructs = sorted(frequent, key=lambda name: (name != "function", -frequent[name], name))
    rows_of = {name: _list_first(name, short) for name in constructs}
    turns = chain(["function"], constructs * _NUM_EXAMPLES)
    found = (next(rows_of[name], None) for name in turns if name in rows_of)
    return tuple(islice((row for row in found if row is not None), _NUM_EXAMPLES))


def _is_short(row: TrainingPair) -> bool:
    is_code = row.lane is Lane.CODEGEN and row.response_mode == "code_only" and row.category in CONSTRUCTS
    is_plain = (
        row.lineage is None and row.infill is None and "\n" not in row.prompt.strip() and "```" not in row.response
    )
    return is_code and is_plain and len(row.prompt) + len(row.response) <= _LONGEST


def _list_first(construct: str, rows: Iterable[TrainingPair]) -> Iterator[TrainingPair]:
    for row in rows:
        module = analyze(row.response).module if row.category == construct else None
        if module is not None and len(module.declarations) == 1:
            (declaration,) = module.declarations
            is_asked = construct_of(declaration).name == construct
            if is_asked and (construct != "function" or _computes(declaration)):
                yield row


def _computes(declaration: Declaration) -> bool:
    if not isinstance(declaration, Function):
        return False
    returned = declaration.return_type
    is_unit = returned is None or (isinstance(returned, NamedType) and returned.name == "Unit")
    return bool(declaration.params and declaration.body) and not is_unit


ORDER: Final = 12
"""Most tokens of an n-gram, white space and the predicted token included; longer ones add almost nothing."""
_MOST_TOKENS: Final = 64


class NgramModel:
    """An n-gram model of tokens, white space and line ends included, that backs off to shorter contexts."""

    def __init__(self, programs: Iterable[str]) -> None:
        self._next: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for program in programs:
            texts = [token.text for token in tokenize(program)]
            for place, text in enumerate(texts):
                for length in range(min(ORDER - 1, place) + 1):
                    self._next[tuple(texts[place - length : place])][text] += 1

    def complete_line(self, prefix: str) -> str:
        """Return the most likely rest of the last line of a text, completing an unfinished last word."""
        texts = [token.text for token in tokenize(prefix)]
        begun = texts.pop() if texts and prefix[-1:].isalnum() else ""
        written: list[str] = []
        for _ in range(_MOST_TOKENS):
            text = self._likeliest(texts[-ORDER + 1 :], "" if written else begun)
            if text is None or "\n" in text:
                break
            written.append(text if written else text.removeprefix(begun))
            texts.append(text)
        return "".join(written)

    def _likeliest(self, context: Sequence[str], begun: str) -> str | None:
        for first in range(len(context) + 1):
            counts = self._next.get(tuple(context[first:]))
            fitting = [text for text in counts if text.startswith(begun)] if counts is not None else []
            if counts is not None and fitting:
                return max(fitting, key=lambda text: (counts[text], text))
        return None
