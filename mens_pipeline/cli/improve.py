"""`mens improve`: rounds of learning from what compiler and tests say of a model's own answers."""

import json
from typing import Annotated

import typer

from mens_pipeline.cli.run import INTERRUPTED, REFUSED, show_progress
from mens_pipeline.cli.terminal import say
from mens_pipeline.feedback.method import Method


def improve(  # noqa: PLR0913 - one parameter an option
    *,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="How many, one after the other.")] = 1,
    method: Annotated[
        Method,
        typer.Option(
            help="raft: train on accepted answers; dpo: on pairs; grpo: on rewards; control: to compare with."
        ),
    ] = Method.RAFT,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", min=0.01, help="Answering and training of a round [default: config/feedback.yaml]."),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Beside each round: as many minutes on rows of the train set alone.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Of prompts, draws and order [default: config/feedback.yaml]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rounds as one JSON document.")] = False,
) -> None:
    """Let the newest adapter answer prompts of its train set, learn from what passes, and judge what comes of it.

    Each round asks other prompts, several answers to each; parser, names and hidden tests say what they are worth.
    What is trained on them is judged, gated and promoted as any adapter. A round that is worse than the one before, by
    the paired test and the p value of config/gates.yaml, is not taken: the next one begins where it began. A round that
    is done is not run again, and what was interrupted goes on.

    Exit code 0: what the last round made is taken. 1: it is not, or something was refused. 2: the command was misused.
    130: interrupted; run the same command to go on.
    """
    from mens_pipeline.definitions import defs
    from mens_pipeline.feedback.rounds import lines_of
    from mens_pipeline.orchestration.improve import InterruptedRoundError, Plan
    from mens_pipeline.orchestration.improve import improve as run_rounds
    from mens_pipeline.orchestration.progress import PROGRESS_LOGGER
    from mens_pipeline.settings import load_settings

    if control and method is Method.CONTROL:
        raise typer.BadParameter("--control: the method is the control already. Leave one of the two out.")
    show_progress(PROGRESS_LOGGER)
    done = []
    try:
        for found, is_kept in run_rounds(defs(), load_settings(), Plan(rounds, method, minutes, control, seed)):
            done.append(found)
            for line in () if as_json else lines_of(found):
                say(line)
            if is_kept and not as_json:
                say("  it was run before")
    except InterruptedRoundError:
        say("interrupted; run the same again: what is done is reused", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps([found.model_dump(mode="json") for found in done], indent=2))
    raise typer.Exit(0 if done[-1].worse is None else REFUSED)
