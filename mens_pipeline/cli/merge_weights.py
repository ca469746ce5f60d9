"""`mens merge-weights`: checkpoints of the scratch lane as one model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.cli.terminal import say


def merge_weights(
    sources: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Scratch runs, checkpoints or models.")],
    *,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the new model.")],
    last: Annotated[int, typer.Option(min=1, help="Newest checkpoints of each run, its final model included.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print merge_manifest.json.")] = False,
) -> None:
    """Average the weights of checkpoints that `mens scratch train` wrote into one model.

    A run stands for its newest checkpoints; a single model is copied as it is. The adapter of a QLoRA run is not
    averaged: `mens merge` merges it into its base.

    Exit code 0: done. 1: refused, with the reason. 2: the command was misused.
    """
    from mens_pipeline.training.scratch.merge import merge_scratch, scratch_sources  # noqa: PLC0415 - loads the stack

    merged = merge_scratch(scratch_sources(sources, last), output_dir)
    for source in merged.sources:
        say(f"from {source}", err=True)
    if as_json:
        typer.echo(json.dumps(merged.manifest, indent=2))
    else:
        digest = merged.manifest["model_sha256"][:12]
        say(f"mean of {len(merged.sources)} models in {merged.path}, SHA-256 {digest}")
