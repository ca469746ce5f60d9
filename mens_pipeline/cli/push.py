"""`mens push`: a promoted adapter to the Hub."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mens_pipeline.cli.terminal import say

if TYPE_CHECKING:
    from mens_pipeline.delivery.hub import PushPlan


def push(
    *,
    repo: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository; made, private, if it is not there.")],
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of a promoted run [default: the champion].")
    ] = None,
    revision: Annotated[str, typer.Option(metavar="BRANCH", help="Made if it is not there.")] = "main",
    yes: Annotated[bool, typer.Option("--yes", help="Send it; else only say what would be sent.")] = False,
) -> None:
    """Send a promoted adapter to the Hub with its card and its figures, as one commit; a dry run unless --yes is given.

    Sent is what was promoted, byte for byte but for the name of the base, which is that of its folder on this machine.
    Nothing that names this machine goes out. The token is read from HF_TOKEN and shown nowhere.

    Exit code 0: sent, or shown. 1: not promoted, or the Hub does not take it. 2: the command was misused.
    """
    from mens_pipeline.delivery import hub  # noqa: PLC0415 - likewise
    from mens_pipeline.delivery.merge_source import merge_source  # noqa: PLC0415 - likewise
    from mens_pipeline.settings import load_settings, open_store  # noqa: PLC0415 - likewise

    settings = load_settings()
    source = merge_source(run_dir, open_store(settings))
    with tempfile.TemporaryDirectory(prefix="mens-push-") as staging:
        plan = hub.plan_push(source, repo, revision, settings.data_licence, Path(staging))
        say(_lines(plan))
        if not yes:
            say("dry run: nothing was sent. Send it with --yes.", err=True)
            return
        pushed = hub.push(plan, settings.hub_token)
    say(f"commit {pushed.commit}\n{pushed.url}")


def _lines(plan: "PushPlan") -> str:
    files = [f"{file.num_bytes:>12,}  {file.sha256[:12]}  {file.name}" for file in plan.files]
    total = sum(file.num_bytes for file in plan.files)
    head = f"{plan.repo} at {plan.revision}: {plan.message}"
    return "\n".join([head, *files, f"{total:>12,}  bytes in {len(files)} files"])
