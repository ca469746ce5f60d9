"""Arguments for tasks: drawn by type, then fitted to what the request promises of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.arguments import Drawing
from mens_pipeline.language.ast.data import TypeDef
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.interpreter.values import Value, Variant

_NUM_CALLS: Final = 60
"""Argument lists for a task at most; most need fewer."""

_SPAN: Final = re.compile(r"(-?\d+)\.\.(-?\d+)")
_LENGTH: Final = "len("
_WORDS: Final = (
    *("tea", "Oslo", "north", "apple", "river", "Ada", "lamp", "stone", "a", "echo", "Anna", "level", "blue", "kiwi"),
    *("sunset", "garden", "Bob", "ox", "market", "seven", "Zoe", "noon", "paper", "lily"),
)


def arguments_for(
    module: Module, function: Function, inputs: Mapping[str, str], seed: str
) -> Iterator[tuple[Value, ...]]:
    """Yield argument lists for a function; a caller who needs few draws few.

    `inputs` maps a parameter or field to what it takes: a range of ints (`0..40`), texts to choose from (`tea|Oslo`), a
    key of `KINDS`; and `len(PARAMETER)` to the fewest elements. What is not named takes any value of its type.
    """
    drawn = Drawing(module).lists(function.params, function.generics, seed)
    fields = {
        variant.name: tuple(field.name for field in variant.fields)
        for declaration in module.declarations
        if isinstance(declaration, TypeDef)
        for variant in declaration.variants
    }
    fit = _Fit(inputs, fields, Random(seed))  # noqa: S311 - a reproducible draw, no secret
    names = [param.name for param in function.params]
    for values in islice(drawn, _NUM_CALLS):
        yield tuple([fit.value(value, name) for value, name in zip(values, names, strict=True)])


class _Fit:
    """Fits drawn values to what is promised."""

    def __init__(self, inputs: Mapping[str, str], fields: Mapping[str, tuple[str, ...]], random: Random) -> None:
        self.inputs = inputs
        self.fields = fields
        self.random = random

    def value(self, value: Value, name: str) -> Value:
        """Fit a drawn value to what is promised of it."""
        wanted = self.inputs.get(name)
        if isinstance(value, list):
            items = [self.value(item, name) for item in value]
            fewest = int(self.inputs.get(f"{_LENGTH}{name})", 0))
            return items + [self.random.randint(-9, 60) for _ in range(fewest - len(items))]
        if isinstance(value, dict):
            return {key: self.value(field, key) for key, field in value.items()}
        if isinstance(value, Variant):
            names = self.fields.get(value.name, (name,) * len(value.fields))
            return Variant(value.name, tuple(map(self.value, value.fields, names)))
        if wanted is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.number(value, wanted)
        if "|" in wanted:
            return self.random.choice(wanted.split("|"))
        return KINDS[wanted](self, value)

    def number(self, value: int, wanted: str) -> int:
        """Fit an int to a range; one that lies there is unchanged."""
        found = _SPAN.fullmatch(wanted)
        assert found is not None, wanted  # noqa: S101 - checked by the test that draws every atom
        low, high = int(found[1]), int(found[2])
        return value if low <= value <= high else low + value % (high - low + 1)

    def words(self, value: str) -> Iterator[str]:
        """Yield one to five words, among them those of a value."""
        known = value.split() or [self.random.choice(_WORDS)]
        for _ in range(self.random.randint(1, 5)):
            yield self.random.choice((*known, *_WORDS[: self.random.randint(1, len(_WORDS))]))


def _numerals(fit: _Fit, _value: str) -> str:
    return ",".join(str(fit.random.randint(-9, 60)) for _ in range(fit.random.randint(1, 5)))


KINDS: Final[Mapping[str, Callable[[_Fit, str], str]]] = {
    "phrase": lambda fit, value: " ".join(fit.words(value)),
    "wordlist": lambda fit, value: ",".join(fit.words(value)),
    "padded": lambda fit, value: fit.random.choice(("", " ", "  ")) + value + fit.random.choice(("", " ")),
    "csv": _numerals,
    "integer": lambda fit, _value: str(fit.random.choice((fit.random.randint(-20, 150), fit.random.randint(-3, 20)))),
}
"""Kinds of text that a parameter may take."""


def parsed_inputs(text: str) -> dict[str, str]:
    """Return parameter -> kind of value, read from `n=0..40, line=csv`."""
    parts = (part.partition("=") for part in text.split(", ") if part)
    return {name: wanted for name, _, wanted in parts}
