"""Methods of strings (F3): characters are counted, but lengths are bytes (V4)."""

from collections.abc import Callable, Iterator
from typing import Final

from mens_pipeline.language.interpreter.library.arguments import a_text, an_int
from mens_pipeline.language.interpreter.library.numbers import TEXTS
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.text_form import byte_length
from mens_pipeline.language.interpreter.values import NONE, Native, Value, Variant, some, type_error

_WHITE_SPACE: Final = "".join(
    map(
        chr,
        (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    )
)
"""Unicode's; unlike `str.strip`, U+001C to U+001F stay."""


def _made(machine: Machine, text: str) -> str:
    """Return a new string, and charge the test for its length in bytes."""
    machine.allocate(byte_length(text))
    return text


def _length(_machine: Machine, text: str) -> int:
    return byte_length(text)


def _contains(machine: Machine, text: str, part: Value) -> bool:
    machine.charge(len(text) // 64)
    return a_text(part, "the argument of `contains`") in text


def _starts_with(_machine: Machine, text: str, part: Value) -> bool:
    return text.startswith(a_text(part, "the argument of `starts_with`"))


def _ends_with(_machine: Machine, text: str, part: Value) -> bool:
    return text.endswith(a_text(part, "the argument of `ends_with`"))


def _split(machine: Machine, text: str, separator: Value = " ") -> list[Value]:
    """Split a text; an empty separator gives an empty string, each character, an empty string."""
    between = a_text(separator, "the separator")
    machine.allocate(text.count(between) + 1)
    machine.allocate(byte_length(text))
    return list(text.split(between)) if between else ["", *text, ""]


def _replace(machine: Machine, text: str, old: Value, new: Value) -> str:
    before, after = a_text(old, "what `replace` looks for"), a_text(new, "what `replace` writes")
    machine.allocate(len(text) + text.count(before) * max(0, byte_length(after) - len(before)))
    return text.replace(before, after)


def _slice(machine: Machine, text: str, first: Value, last: Value | None = None) -> str:
    start = max(0, an_int(first, "the start of `slice`"))
    end = len(text) if last is None else max(0, an_int(last, "the end of `slice`"))
    return _made(machine, text[start:end])


def _char_at(_machine: Machine, text: str, index: Value) -> Variant:
    place = an_int(index, "the argument of `char_at`")
    return some(text[place]) if 0 <= place < len(text) else NONE


def _index_of(machine: Machine, text: str, part: Value) -> Variant:
    machine.charge(len(text) // 64)
    place = text.find(a_text(part, "the argument of `index_of`"))
    return some(place) if place >= 0 else NONE


def _repeat(machine: Machine, text: str, times: Value) -> str:
    count = an_int(times, "the argument of `repeat`")
    if count < 0:
        raise type_error(f"a string cannot be repeated {count} times")
    machine.allocate(byte_length(text) * count)
    return text * count


def _changed(change: Callable[[str], str], *names: str) -> Iterator[Native]:
    """Yield a method that makes another string, by each of its names."""
    for name in names:
        yield Native(name, lambda machine, text: _made(machine, change(text)), 0, 0)


TEXT_METHODS: Final[dict[str, Native]] = TEXTS | {
    native.name: native
    for native in (
        Native("len", _length, 0, 0),
        Native("length", _length, 0, 0),
        Native("is_empty", lambda _machine, text: not text, 0, 0),
        *_changed(str.upper, "to_upper", "to_uppercase"),
        *_changed(str.lower, "to_lower", "to_lowercase"),
        *_changed(lambda text: text.strip(_WHITE_SPACE), "trim"),
        *_changed(lambda text: text.lstrip(_WHITE_SPACE), "trim_start"),
        *_changed(lambda text: text.rstrip(_WHITE_SPACE), "trim_end"),
        Native("contains", _contains, 1, 1),
        Native("starts_with", _starts_with, 1, 1),
        Native("ends_with", _ends_with, 1, 1),
        Native("split", _split, 0, 1),
        Native("replace", _replace, 2, 2),
        Native("slice", _slice, 1, 2),
        Native("char_at", _char_at, 1, 1),
        Native("index_of", _index_of, 1, 1),
        Native("repeat", _repeat, 1, 1),
        Native("chars_count", lambda _machine, text: len(text), 0, 0),
    )
}
