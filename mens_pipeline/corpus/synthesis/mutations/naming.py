"""New names for old: a synonym for one of the words, or a word in front or behind."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from pydantic import BaseModel, ConfigDict

from mens_pipeline.language.vocabulary import EFFECTS, KEYWORDS, VIEW_TAGS
from mens_pipeline.storage.yaml_file import load_model


class _Names(BaseModel):
    """The file of other names: synonyms of a word, and affixes by what is named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    synonyms: dict[str, tuple[str, ...]]
    affixes: dict[str, tuple[str, ...]]


@cache
def _names() -> _Names:
    return load_model(Path(__file__).with_name("names.yaml"), _Names)


_LIKE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("query", "mutation", "server", "scheduled", "mcp_tool", "mcp_resource", "activity"), "function"),
    "forall": "test",
    "derived value": "variable",
    "form field": "field",
    "lambda parameter": "parameter",
}
"""What is named -> what is named in the same way."""

_OTHER_AFFIXES: Final = ("{}_main", "{}_default", "primary_{}")

_LIBRARY: Final = frozenset((
    "assert", "assert_eq", "assert_ne", "bool", "char", "db", "float", "int", "json", "len", "list", "main", "map",
    "panic", "print", "println", "range", "secrets", "std", "str", "to_string", "type_of", "Element", "Err", "Error",
    "Id", "Json", "List", "Map", "None", "Ok", "Option", "Result", "Some", "Unit",
))  # fmt: skip
"""Names that mean the same in every program, declared or not."""

_CONTEXTUAL: Final = frozenset((
    "any", "error", "field", "from", "key", "kind", "label", "partial", "react", "routes", "rust", "state_machine",
    "style", "terminal", "url", "uses",
))  # fmt: skip
"""Words that mean something to the grammar in some places."""

_NOT_NEW: Final = _LIBRARY | _CONTEXTUAL | KEYWORDS | VIEW_TAGS | EFFECTS


def is_built_in(name: str) -> bool:
    """Return whether a name belongs to the library or is the entry point: what is called so must not be renamed."""
    return name in _LIBRARY


def new_name(old: str, noun: str, taken: Collection[str], random: Random) -> str | None:
    """Return another name in the same case for the same thing; None when every idea is taken.

    `noun` is what it names: `function`, `loop variable`. Synonyms come first.
    """
    words = words_of(old)
    synonyms = _with_synonyms(words)
    affixed = [idea.format("_".join(words)) for idea in _names().affixes.get(_LIKE.get(noun, noun), _OTHER_AFFIXES)]
    random.shuffle(synonyms)
    random.shuffle(affixed)
    ideas = (_in_case_of(old, idea) for idea in (*synonyms, *affixed))
    return next((idea for idea in ideas if idea not in taken and idea not in _NOT_NEW), None)


def words_of(name: str) -> list[str]:
    """Split a name into its words in lower case: `BayReading` and `bay_reading` are `bay`, `reading`."""
    spaced = "".join(f"_{c}" if c.isupper() and i and name[i - 1].islower() else c for i, c in enumerate(name))
    return spaced.lower().split("_")


def synonyms_of(word: str) -> tuple[str, ...]:
    """Return the synonyms of a word; empty when none is known."""
    return _names().synonyms.get(word, ())


def _with_synonyms(words: list[str]) -> list[str]:
    return [
        "_".join((*words[:place], synonym, *words[place + 1 :]))
        for place, word in enumerate(words)
        for synonym in synonyms_of(word)
    ]


def _in_case_of(old: str, idea: str) -> str:
    """Convert a name in snake case to `snake_case`, `CamelCase` or `CAPITALS`, whichever the old name has."""
    if old.isupper() and len(old) > 1:
        return idea.upper()
    return "".join(word.capitalize() for word in idea.split("_")) if old[0].isupper() else idea
