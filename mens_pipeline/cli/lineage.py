"""`mens lineage`: what an adapter was made from, and what rests on it."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mens_pipeline.cli.terminal import say

if TYPE_CHECKING:
    from mens_pipeline.delivery.lineage import Link

_SHOWN = 10


def lineage(
    adapter: Annotated[str, typer.Argument(metavar="ADAPTER", help="`champion`, or how the key of an adapter begins.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON document.")] = False,
) -> None:
    """Print what an adapter was made from, down to files, lines and commits, and what rests on it.

    Exit code 0: printed. 1: there is no such adapter. 2: the command was misused.
    """
    from mens_pipeline.configured import open_store
    from mens_pipeline.delivery.lineage import lineage_of
    from mens_pipeline.settings import load_settings

    found = lineage_of(open_store(load_settings()), adapter)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    say(f"adapter    {_shown(found.adapter)}")
    for link in found.rests_on:
        say(f"made from  {_shown(link)}")
    for name, count in found.rows.items():
        say(f"rows       {count:>7}  {name}")
    most = sorted(found.files.items(), key=lambda item: -item[1])
    for name, count in most[:_SHOWN]:
        lines = ", ".join(f"{first}-{last}" for first, last in found.lines[name])
        say(f"file       {count:>7}  {name}  lines {lines}")
    if len(most) > _SHOWN:
        say(f"           and {len(most) - _SHOWN} more files: --json")
    say(f"commits    {', '.join(found.commits) or 'none on record'}")
    for link in found.used_by:
        say(f"used by    {_shown(link)}")


def _shown(link: "Link") -> str:
    gone = "" if link.is_there else "  (no longer in the store)"
    return f"{link.kind:<16}  {link.key[:12]}  {link.name}".rstrip() + gone
