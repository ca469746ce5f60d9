"""Persons whom a comment, or the first words of a line, say to have written, reviewed or own something."""

import re
from typing import Final

_MARK: Final = re.compile(r"//|#|/\*|<!--|^[ \t]*(?:\*|--)")
"""Begins a comment in a line."""
_BLANK_BEFORE: Final = re.compile(r"(?:\A|\n)[ \t>*_]*\Z")
_MOST_BEFORE: Final = 160
"""Characters of a line that are looked at for the beginning of a comment."""

# A capital of Latin, Greek or Cyrillic, or a letter of a script without capitals.
_CAPITAL: Final = r"[A-ZÀ-ÖØ-ÞŁŚŠŽČŽİĆΑ-ΫА-Я\u0590-\u06FF\u0900-\u097F\u3040-\u30FF\u4E00-\u9FFF\uAC00-\uD7AF]"
_PART: Final = rf"{_CAPITAL}(?:[\w'\u2019-]{{0,40}}\w|\.(?=[ A-Z]))?"
_PARTICLE: Final = r"(?:(?:van|von|der|den|de|da|di|du|dos|la|le|bin|al|el|zu|ter)[ ]){0,2}"
_ADDRESS: Final = r"(?:[<(][^\n<>()]{1,80}[>)]|@[\w-]{2,39}|[\w.%+-]{1,64}@[\w.-]{1,64}\w)"
_PERSON: Final = rf"(?:{_PART}(?:[ ]{_PARTICLE}{_PART}){{0,4}}(?:,?[ ]{_ADDRESS})?|{_ADDRESS})"
_DEEDS: Final = (
    *("written", "authored", "created", "coded", "developed", "implemented", "maintained", "contributed", "designed"),
    *("owned", "signed-off", "reviewed", "acked", "tested", "reported", "ported", "adapted", "fixed", "added"),
    *("modified", "edited", "done", "made"),
)
_PERSONS: Final = rf"(?P<who>{_PERSON}(?:(?:,|,? and|,? &)[ ]{_PERSON}){{0,4}})"
_BYLINE: Final = re.compile(
    rf"(?P<keep>(?<![\w-])(?i:(?P<role>(?:co-)?(?:{'|'.join(_DEEDS)})[ -]by|by)):?[ ]){_PERSONS}"
)
_CREDIT: Final = re.compile(
    r"(?P<keep>(?<![\w-])(?i:(?P<role>courtesy of|thanks to|credits? to|copyright(?:[ ](?:\(c\)|©))?|\(c\)|©)):?[ ]"
    rf"(?:[0-9]{{4}}(?:[ ]?[-\u2013,][ ]?[0-9]{{4}})?,?[ ](?i:by[ ])?)?){_PERSONS}"
)
_LABEL: Final = re.compile(
    r"(?P<keep>(?<![\w-])(?:@author:?|(?P<role>(?:co-?)?authors?|maintainers?|contributors?|(?:code ?)?owners?|"
    r"reviewers?|contact|writer|developer):)[ \t]{1,8})"
    r"(?P<who>[^\s*][^\n*]{0,158}?)(?=[ \t]{0,8}(?:\*/|-->|\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
_ASSIGNED: Final = re.compile(r"(?P<keep>(?<!\w)(?:TODO|FIXME|XXX)\()(?P<who>@?[A-Za-z][\w.@-]{1,60})(?=\))")
_NO_NAME: Final = frozenset(
    ("the", "this", "that", "these", "each", "every", "all", "any", "one", "its", "it", "if", "for", "when", "vox")
)

_TYPES: Final = frozenset(("str", "string", "text", "int", "bool", "id", "none", "null", "unknown", "optional", "user"))


def _comment_before(match: re.Match[str]) -> str | None:
    """Return the part of a comment that stands before a match; None outside a comment."""
    begin = match.start()
    line = match.string[max(0, begin - _MOST_BEFORE) : begin].rpartition("\n")[2]
    mark = _MARK.search(line)
    return None if mark is None else line[mark.start() :]


def _is_byline(match: re.Match[str]) -> bool:
    """Return whether a person is named: in a comment, or at the beginning of a line in two words or with an address."""
    who = match["who"]
    if who.startswith("REDACTED_") or who.partition(" ")[0].lower() in _NO_NAME:
        return False
    is_full = " " in who or "@" in who
    comment = _comment_before(match)
    begins = _BLANK_BEFORE.search(match.string, max(0, match.start() - 8), match.start()) is not None
    if comment is None:
        return is_full and begins
    return match["role"].lower() != "by" or (is_full and re.search(r"\w", comment) is None)


def _is_labelled(match: re.Match[str]) -> bool:
    """Return whether a comment labels a person: by a capital, by a handle, or by one word that is no type."""
    who = match["who"]
    if who.startswith(("REDACTED_", "`", '"')) or _comment_before(match) is None:
        return False
    role, first = (match["role"] or "author").lower(), who.lstrip("<@")
    is_handle = " " not in who and role.startswith(("author", "maintainer")) and who.lower() not in _TYPES
    return not first[:1].islower() or "@" in who or is_handle


def _is_assigned(match: re.Match[str]) -> bool:
    return _comment_before(match) is not None and not match["who"].startswith("REDACTED_")


# As the deeds end; "sorted by" and "separated by" are much more frequent than they.
_BY: Final = re.compile(
    r"by[: ](?:(?<=(?:tten|ored|oded|oped|nted|gned|wned|-off|ewed|cked|sted|pted|ixed|dded|fied|ited|done|"
    r"made)[ -]by.)|(?<=(?:created|ntained|ributed|eported|\Wported)[ -]by.)|(?<=[/#*-] by.)|(?<=\nby.))"
)
_CREDITS: Final = ("courtesy of", "thanks to", "credit", "copyright", "(c)", "©")
_LABELS: Final = re.compile(r":(?<=(?:thor|hors|iner|ners|utor|tors|wner|ewer|wers|tact|iter|oper):)")

AUTHORS: Final = (
    (_BYLINE, _BY, _is_byline),
    (_CREDIT, _CREDITS, _is_byline),
    (_LABEL, _LABELS, _is_labelled),
    (_LABEL, ("@author",), _is_labelled),
    (_ASSIGNED, ("todo(", "fixme(", "xxx("), _is_assigned),
)
"""Patterns of who is named, in the form of the rules of `redaction`, with their hints and what accepts a match."""
