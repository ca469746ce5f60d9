"""`mens grammar`: Vox as a grammar, for engines that decode by one."""

from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.cli.terminal import tell
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text


def grammar(
    *,
    notation: Annotated[
        GrammarFormat, typer.Option("--format", help="`lark` for llguidance, vLLM and SGLang, `gbnf` for llama.cpp.")
    ] = GrammarFormat.LARK,
    is_ui: Annotated[bool, typer.Option("--ui", help="For `.vox.ui` files instead of `.vox` files.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where it goes; else to standard output.")
    ] = None,
) -> None:
    """Print a grammar of Vox for engines that let a model write only what a grammar allows.

    What it accepts, `mens check` accepts, but not the other way round: it knows programs as a formatter writes them,
    and its head says what is left out.

    Exit code 0: done. 2: the command was misused.
    """
    text = grammar_text(notation, is_ui=is_ui)
    if output is None:
        typer.echo(text, nl=False)
        return
    from mens_pipeline.storage.jsonl import write_text

    write_text(output, text)
    tell(f"{output}: {notation} grammar of {'.vox.ui' if is_ui else '.vox'} files, {text.count(chr(10))} lines")
