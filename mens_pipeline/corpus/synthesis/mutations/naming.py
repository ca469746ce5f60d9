"""New names for old: a synonym for one of the words, or a word in front or behind."""

from collections.abc import Collection, Mapping
from random import Random
from typing import Final

from mens_pipeline.language.vocabulary import EFFECTS, KEYWORDS, VIEW_TAGS

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "account": ("profile", "member"),
    "add": ("insert", "append"),
    "address": ("location",),
    "all": ("every",),
    "amount": ("quantity", "sum"),
    "author": ("writer",),
    "average": ("mean",),
    "board": ("panel", "dashboard"),
    "booking": ("reservation",),
    "build": ("make", "create"),
    "check": ("verify", "validate"),
    "choice": ("selection", "pick"),
    "city": ("town",),
    "clean": ("tidy",),
    "client": ("customer",),
    "cost": ("expense", "charge"),
    "count": ("tally", "total"),
    "counter": ("tally",),
    "create": ("make", "add"),
    "current": ("present", "active"),
    "customer": ("client", "buyer"),
    "day": ("date",),
    "delete": ("remove", "erase"),
    "description": ("summary", "details"),
    "draft": ("pending", "sketch"),
    "email": ("mail_address",),
    "entry": ("item", "record"),
    "error": ("failure", "problem"),
    "fetch": ("load", "get"),
    "find": ("look_up", "search"),
    "first": ("leading",),
    "get": ("fetch", "read"),
    "greeting": ("salutation",),
    "group": ("cluster", "team"),
    "height": ("elevation",),
    "highest": ("maximum",),
    "index": ("position",),
    "input": ("given",),
    "item": ("entry", "element"),
    "items": ("entries", "elements"),
    "job": ("task", "assignment"),
    "last": ("latest", "final"),
    "length": ("extent",),
    "level": ("degree", "grade"),
    "limit": ("maximum", "cap"),
    "list": ("show", "enumerate"),
    "load": ("fetch", "read"),
    "lowest": ("minimum",),
    "make": ("build", "create"),
    "message": ("notice", "announcement"),
    "minutes": ("mins",),
    "name": ("full_name", "display_name"),
    "next": ("following", "upcoming"),
    "owner": ("holder", "keeper"),
    "parts": ("pieces",),
    "person": ("individual",),
    "picker": ("chooser", "selector"),
    "place": ("spot", "location"),
    "points": ("score",),
    "post": ("publish", "submit"),
    "price": ("cost", "rate"),
    "query": ("lookup",),
    "rank": ("position", "standing"),
    "reading": ("measurement", "sample"),
    "reason": ("cause", "explanation"),
    "record": ("entry",),
    "remove": ("delete", "drop"),
    "report": ("summary", "digest"),
    "request": ("inquiry",),
    "result": ("outcome",),
    "room": ("chamber", "space"),
    "save": ("store", "keep"),
    "score": ("points", "grade"),
    "seats": ("places",),
    "send": ("dispatch", "deliver"),
    "session": ("visit",),
    "show": ("present", "display"),
    "size": ("extent", "magnitude"),
    "start": ("begin", "launch"),
    "state": ("status",),
    "status": ("condition", "phase"),
    "step": ("stage", "advance"),
    "store": ("keep", "save"),
    "sum": ("total",),
    "tag": ("marker", "badge"),
    "task": ("ticket", "todo"),
    "title": ("headline", "display_name"),
    "total": ("sum", "grand_total"),
    "update": ("change", "modify"),
    "user": ("member", "person"),
    "value": ("amount", "quantity"),
    "values": ("amounts", "figures"),
    "weight": ("mass",),
    "word": ("term",),
    "words": ("terms",),
}
"""A word of a name -> what may stand for it."""

_AFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "function": ("compute_{}", "{}_internal", "{}_v2", "run_{}"),
    "test": ("checks_{}", "{}_as_expected", "verify_{}"),
    "type": ("{}_info", "{}_data", "{}_record"),
    "table": ("{}_entry", "{}_record", "stored_{}"),
    "component": ("{}_widget", "{}_section", "main_{}"),
    "fragment": ("{}_part", "{}_block"),
    "variable": ("{}_value", "current_{}", "local_{}"),
    "loop variable": ("each_{}", "current_{}"),
    "parameter": ("given_{}", "{}_input"),
    "field": ("{}_value", "{}_info"),
    "state": ("{}_state", "current_{}"),
    "variant": ("{}_case", "is_{}"),
    "index": ("{}_lookup", "{}_index"),
    "handler": ("handle_{}", "on_{}"),
    "event": ("{}_event", "did_{}"),
}
"""What is named -> what its names may be made into; for everything else a word is put behind."""

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
    affixed = [idea.format("_".join(words)) for idea in _AFFIXES.get(_LIKE.get(noun, noun), _OTHER_AFFIXES)]
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
    return _SYNONYMS.get(word, ())


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
