"""`mens replay`: what an adapter would have written of the lines that came to a workspace later."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.progress import choose_device, run_and_show, show_completions
from mens_pipeline.cli.terminal import align_columns, interruptible, print_json, print_line
from mens_pipeline.configured import open_store
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.settings import EVALUATION, Settings, load_settings

if TYPE_CHECKING:
    from mens_pipeline.evaluation.replay import ReplayRates, ReplayResults
    from mens_pipeline.models.adapter import Adapter


@declare_options
def replay(
    *,
    workspace: Annotated[
        Path | None,
        typer.Argument(help="A folder of a git checkout [default: MENS_SOURCE_ROOT].", show_default=False),
    ] = None,
    since: str | None = option(
        None, "The commit of the train set, or a date [default: the commit of the adapter].", metavar="DATE|COMMIT"
    ),
    run_dir: Path | None = option(None, "The folder of a run [default: the champion].", metavar="DIR"),
    limit: int = option(500, "Holes at most, a draw that is the same every time.", ge=1, le=20_000, metavar="N"),
    device: DeviceChoice = option(DeviceChoice.BEST, "Never another one in its place."),
    dry_run: bool = switch("Count the holes, and ask no model."),
    as_json: bool = switch("Print one JSON document.", "--json"),
) -> None:
    """Replay the git history of a workspace: an adapter is asked for the lines that came after its train set.

    Each place where a commit adds one to eight lines to a program is a hole in the program before that commit. The
    adapter, the one promoted before it, base and n-gram are asked for them; all but the adapters see no suffix, and are
    asked for single lines alone. Figures have 95 % intervals over commits. Merges, renamed, new and generated files,
    mass changes and what is no code are left out, and counted.

    Exit code 0: replayed. 1: there is no history, or a model could not complete. 2: the command was misused.
    """
    settings = load_settings()
    folder = workspace or settings.source_root
    if dry_run:
        _count(folder, since, limit, as_json=as_json)
        return
    from mens_pipeline.evaluation.config import EvaluationConfig
    from mens_pipeline.inference.prepare import Conditions
    from mens_pipeline.promotion.replay import replay_history, replay_in
    from mens_pipeline.storage.yaml_file import load_model

    adapter, config = _adapter(run_dir, settings), load_model(EVALUATION, EvaluationConfig)
    found = choose_device(device, settings)
    conditions = Conditions(config.decoding, found, found.lock_in(settings.cache_root))
    with interruptible("run the same command again, finished completions are kept"):
        made, _ = replay_history(
            adapter,
            folder,
            open_store(settings),
            since=since,
            number=limit,
            config=config,
            conditions=conditions,
            launch=lambda job: run_and_show(job.path, show_completions(), num_ranks=job.devices),
        )
    results = replay_in(made.path)
    if as_json:
        typer.echo(results.model_dump_json(indent=2))
        return
    for line in _summary(results):
        print_line(line)
    print_line(f"results {made.path}")


def _count(folder: Path, since: str | None, limit: int, *, as_json: bool) -> None:
    """Print how many holes a history has, and what was left out."""
    from mens_pipeline.corpus.infill.history import read_history
    from mens_pipeline.corpus.schema.account import counts_of
    from mens_pipeline.corpus.schema.reasons import ReplayDrop

    if since is None:
        raise typer.BadParameter("--dry-run asks no adapter, so it needs a commit or date: --since 2026-05-01.")
    history = read_history(folder, since, limit)
    dropped, num_commits = counts_of(ReplayDrop, history.dropped), len({hole.commit for hole in history.holes})
    if as_json:
        counts = {"seen": history.seen, "holes": history.kept, "commits": num_commits, "dropped": dropped}
        print_json({**counts, "by_week": history.by_week})
        return
    print_line(f"{history.kept} holes in {num_commits} commits, of {history.seen} changes since {since}")
    print_line(_left_out(dropped))
    for line in align_columns([("week", "holes"), *((str(w), str(n)) for w, n in history.by_week.items())]):
        print_line(line)


def _left_out(dropped: Mapping[str, int]) -> str:
    counts = sorted(((number, reason) for reason, number in dropped.items() if number), reverse=True)
    return f"left out: {', '.join(f'{number} {reason}' for number, reason in counts) or 'nothing'}"


def _adapter(run_dir: Path | None, settings: Settings) -> "Adapter":
    from mens_pipeline.models.adapter import Adapter
    from mens_pipeline.promotion.history import champion_of

    if run_dir is not None:
        return Adapter.open(run_dir)
    champion = champion_of(open_store(settings))
    if champion is None:
        advice = "Name a run with --run-dir, or count the holes alone with --dry-run."
        raise RefusedError(f"{settings.store_root}: no adapter was promoted yet. {advice}")
    return Adapter.open(champion.path)


def _summary(results: "ReplayResults") -> Iterator[str]:
    from mens_pipeline.evaluation.replay import SHOWN_MODELS

    num_holes = len(results.times)
    yield f"{num_holes} holes in {results.drift.num_commits} commits, of {results.seen} changes since {results.since}"
    yield _left_out(results.dropped)
    rows = [("", "holes", "exact", "characters kept", "inserts parse")]
    rows += [
        (f"{SHOWN_MODELS.get(model, model)}, {part if part in _WORDS else f'week {part}'}", *_cells(rates))
        for part, some in results.parts.items()
        for model, rates in some.items()
        if part == "lines" or model in {"adapter", "champion"}
    ]
    yield from align_columns(rows)
    yield f"drift: {results.drift}"


_WORDS: Final = ("all", "lines")


def _cells(rates: "ReplayRates") -> tuple[str, str, str, str]:
    kept = f"{100 * (rates.kept.value or 0.0):.1f} % {rates.kept.interval}"
    exact, parses = (f"{rate.short} {rate.interval}" for rate in (rates.exact, rates.parses))
    return str(rates.num_holes), exact, kept, parses
