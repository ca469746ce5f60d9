"""Command groups, and advice for commands and options that the Rust toolchain names differently."""

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
    """Return advice by word of the Rust toolchain, for the commands of a group or the options of a command."""
    from mens_pipeline.storage.yaml_file import load_yaml

    table: dict[str, dict[str, str]] = load_yaml(TABLE)
    return {word: text for words, text in table.get(place, {}).items() for word in words.split(", ")}


_WHOLE_SENTENCE: Final = 200  # maximum length of a sentence in a list of commands


class ListingGroup(TyperGroup):
    """A group whose help shows the whole first sentence of each command."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002 - its form
        """Return commands and groups in the order of their definition."""
        return [*self.commands]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands below their headings."""
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
        """Return the command; refuse one that only the Rust toolchain has, or its options, and say what to write."""
        place, name = _find_place(ctx), args[0]
        command = self.get_command(ctx, name)
        if command is None and name in advice_on(place):
            raise ConfigurationError(f"{ctx.command_path} {name}: no such command. {advice_on(place)[name]}")
        if command is not None:
            _refuse_theirs(command.params, args[1:], f"{place} {name}".strip())
        return super().resolve_command(ctx, args)


def _find_place(ctx: Any) -> str:
    return "" if ctx.parent is None else f"{_find_place(ctx.parent)} {ctx.info_name}".strip()


def list_choices(parameter: Any) -> tuple[str, ...]:
    """Return the values that an option accepts; empty if it accepts any."""
    annotation = parameter.type_descriptor.annotation
    return tuple(map(str, annotation if isinstance(annotation, EnumType) else get_args(annotation)))


def _refuse_theirs(parameters: Sequence[Any], words: Sequence[str], place: str) -> None:
    known = {name: list_choices(one) for one in parameters for name in (*one.opts, *one.secondary_opts)}
    for word, following in zip(words, (*words[1:], ""), strict=False):
        name, is_joined, value = word.partition("=")
        value = value if is_joined else following
        is_wrong = value not in known[name] != () if name in known else name not in _HELP
        if name.startswith("-") and is_wrong and name in advice_on(place):
            asked = f"{name} {value}" if name in known else name
            raise RefusedError(f"{asked} is not supported. {advice_on(place)[name]}")
