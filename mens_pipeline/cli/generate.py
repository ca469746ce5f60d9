"""`mens generate`: from a prompt to a program that was checked."""

from pathlib import Path

import typer

from mens_pipeline.cli.demo import DEMO, complete_here, describe_score
from mens_pipeline.cli.options import Options, argument, option, switch, take_options
from mens_pipeline.cli.progress import choose_device
from mens_pipeline.cli.terminal import REFUSED, log_line, print_line
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.language import Mode
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import Settings, load_settings, open_store
from mens_pipeline.storage.jsonl import write_text


class GenerateOptions(Options):
    """Options of `mens generate`."""

    prompt: str = argument("What to write, in words.", metavar="PROMPT")
    output: Path | None = option(None, "Where it goes [default: stdout].", "-o", "--output", metavar="FILE")
    run_dir: Path | None = option(None, "A run of `mens train` [default: the champion].", metavar="DIR")
    device: DeviceChoice = option(DeviceChoice.BEST, "Never another one in its place.")
    max_tokens: int = option(256, "Tokens of the program at most.", ge=1, le=131_072)
    no_validate: bool = switch("Take what is written even where it is not a program.")


@take_options(GenerateOptions)
def generate(options: GenerateOptions) -> None:
    """Let a model write one program, and check it.

    It writes freely, and where that is not a program once more, with only tokens that lead to one, as `mens serve`
    does. What the parser, names and types say goes to stderr.

    Exit code 0: the program is written. 1: none came, or there is no model. 2: the command was misused. 130:
    interrupted.
    """
    from mens_pipeline.evaluation.judge import judge
    from mens_pipeline.evaluation.tasks import Suite, Task

    settings = load_settings()
    adapter = Adapter.open(options.run_dir or _champion(settings))
    task = Task("prompt", Suite.BENCHMARK, "", "", "", options.prompt, name=None, mode=Mode.SOURCE, reference="")
    device, requests = choose_device(options.device, settings), {"prompt": [task.request]}
    (written,) = complete_here(adapter, requests, options.max_tokens, device, settings.cache_root)
    score = judge(task, written)
    log_line(describe_score(score).strip())
    if not (score.parses or options.no_validate):
        raise typer.Exit(REFUSED)
    if options.output is not None:
        write_text(options.output, score.program.rstrip("\n") + "\n")
    else:
        print_line(score.program.rstrip("\n"))


def _champion(settings: Settings) -> Path:
    from mens_pipeline.promotion.history import find_champion

    store = open_store(settings)
    champion = find_champion(store)
    if champion is None:
        raise RefusedError(f"{store.root}: no adapter is promoted. Name a run with --run-dir, such as {DEMO}.")
    return champion.path
