"""`mens push`: a promoted adapter, its train set, or the benchmark to the Hub."""

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mens_pipeline.cli.terminal import say
from mens_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from mens_pipeline.delivery.hub import PushPlan, Target
    from mens_pipeline.settings import Settings


class What(StrEnum):
    """Kind of repository content."""

    ADAPTER = "adapter"
    TRAIN_SET = "train-set"
    BENCHMARK = "benchmark"


def push(  # noqa: PLR0913 - one parameter an option
    *,
    repo: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository; made, private, if it is not there.")],
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of a promoted run [default: the champion].")
    ] = None,
    revision: Annotated[str, typer.Option(metavar="BRANCH", help="Made if it is not there.")] = "main",
    what: Annotated[What, typer.Option(help="Train set and benchmark go to a repository for datasets.")] = What.ADAPTER,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder that keeps what is sent, or would be.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send it; else only say what would be sent.")] = False,
) -> None:
    """Send a promoted adapter to the Hub with its card and its figures, as one commit; a dry run unless --yes is given.

    With --what train-set its train set is sent instead, with --what benchmark the held-out benchmark with solutions and
    hidden tests; MENS_DATA_LICENCE must say under which licence. `datasets` loads both, also from --into.

    Sent is what was promoted, byte for byte but for the name of the base, which is that of its folder on this machine.
    Nothing that names this machine goes out. The token is read from HF_TOKEN and shown nowhere.

    Exit code 0: sent, or shown. 1: not promoted, or the Hub does not take it. 2: the command was misused.
    """
    from mens_pipeline.delivery import hub
    from mens_pipeline.settings import load_settings

    settings = load_settings()
    if into is not None and into.exists():
        raise ConfigurationError(f"--into {into}: is there already. Name a folder that is not.")
    target = hub.Target(repo, revision, "model" if what is What.ADAPTER else "dataset")
    with tempfile.TemporaryDirectory(prefix="mens-push-") as staging:
        plan = _planned(what, run_dir, target, settings, into or Path(staging))
        say(_lines(plan))
        if not yes:
            say("dry run: nothing was sent. Send it with --yes.", err=True)
            return
        pushed = hub.push(plan, settings.hub_token)
    say(f"commit {pushed.commit}\n{pushed.url}")


def _planned(what: What, run_dir: Path | None, target: "Target", settings: "Settings", staging: Path) -> "PushPlan":
    from mens_pipeline.configured import open_store
    from mens_pipeline.delivery import hub, hub_datasets
    from mens_pipeline.delivery.merge_source import merge_source

    if what is What.BENCHMARK:
        return hub_datasets.plan_benchmark(settings.benchmark_dir, target, settings.data_licence, staging)
    store = open_store(settings)
    source = merge_source(run_dir, store)
    if what is What.TRAIN_SET:
        return hub_datasets.plan_train_set(source, store, target, settings.data_licence, staging)
    return hub.plan_push(source, target, settings.data_licence, staging)


def _lines(plan: "PushPlan") -> str:
    files = [f"{file.num_bytes:>12,}  {file.sha256[:12]}  {file.name}" for file in plan.files]
    total = sum(file.num_bytes for file in plan.files)
    head = f"{plan.target.repo} at {plan.target.revision}: {plan.message}"
    return "\n".join([head, *files, f"{total:>12,}  bytes in {len(files)} files"])
