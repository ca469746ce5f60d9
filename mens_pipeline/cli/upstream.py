"""Advice for commands and options of the Rust toolchain that are named otherwise here."""

from collections.abc import Mapping, Sequence
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import typer
from typer.core import TyperGroup

from mens_pipeline.errors import ConfigurationError, RefusedError

_HELP: Final = ("--help", "-h")
TABLE: Final = Path(__file__).with_name("upstream.yaml")


@cache
def advice_on(place: str) -> Mapping[str, str]:
    """Return what to write instead of words of the Rust toolchain, below a group or in the options of a command."""
    from mens_pipeline.storage.yaml_file import load_yaml

    table: dict[str, dict[str, str]] = load_yaml(TABLE)
    return {word: text for words, text in table.get(place, {}).items() for word in words.split(", ")}


_WHOLE_SENTENCE: Final = 200
"""Characters of a sentence in a list of commands at most."""


class ListingGroup(TyperGroup):
    """A group whose help shows each command with its whole first sentence."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002 - its form
        """Return the names of the commands in the order in which they were added, groups among them."""
        return [*self.commands]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands under the heading of their use, each with its whole first sentence."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                rows = headings.setdefault(heading if isinstance(heading, str) else "Commands", [])
                rows.append((name, command.get_short_help_str(_WHOLE_SENTENCE)))
        for heading, rows in headings.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class AdvisingGroup(ListingGroup):
    """A group that knows the commands and options of the Rust toolchain."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command that was asked for.

        Raises:
            ConfigurationError: It is one of the Rust toolchain; the message says what does its work here.
            RefusedError: One of its options is; the message says what to write instead.
        """
        place, name = _place_of(ctx), args[0]
        command = self.get_command(ctx, name)
        if command is None and name in advice_on(place):
            raise ConfigurationError(f"{ctx.command_path} {name}: no such command. {advice_on(place)[name]}")
        if command is not None:
            _refuse_theirs(command.params, args[1:], f"{place} {name}".strip())
        return super().resolve_command(ctx, args)


def _place_of(ctx: Any) -> str:
    """Return the words of a group after the name of the program."""
    return "" if ctx.parent is None else f"{_place_of(ctx.parent)} {ctx.info_name}".strip()


def choices_of(parameter: Any) -> tuple[str, ...]:
    """Return the values that an option takes; none where it takes any."""
    annotation = parameter.type_descriptor.annotation
    return tuple(map(str, annotation if isinstance(annotation, EnumType) else get_args(annotation)))


def _refuse_theirs(parameters: Sequence[Any], words: Sequence[str], place: str) -> None:
    known = {name: choices_of(one) for one in parameters for name in (*one.opts, *one.secondary_opts)}
    for word, following in zip(words, (*words[1:], ""), strict=False):
        name, is_joined, value = word.partition("=")
        value = value if is_joined else following
        is_wrong = value not in known[name] != () if name in known else name not in _HELP
        if name.startswith("-") and is_wrong and name in advice_on(place):
            asked = f"{name} {value}" if name in known else name
            raise RefusedError(f"{asked} is not offered. {advice_on(place)[name]}")
