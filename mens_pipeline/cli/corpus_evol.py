"""`mens corpus evol`: requests made harder by a model, and answered by it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mens_pipeline.cli.terminal import INTERRUPTED, tell
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.corpus.evolution.requests import Generator
    from mens_pipeline.inference.prepare import PreparedGeneration
    from mens_pipeline.settings import Settings

_GRACE_SECONDS: Final = 20.0
_CLOSED: Final = (
    "EVOL_GATE: not set, so no model writes training data. A front end and tests judge what it writes, people do not. "
    "Set EVOL_GATE=1 to have it all the same."
)
_WHO: Final = (
    "Name who writes: --endpoint URL --name MODEL (or MENS_EVOL_URL and MENS_EVOL_MODEL), "
    "or --run-dir DIR for a model of this project; not both."
)


@dataclass(frozen=True, slots=True)
class _How:
    """Sampling options of the generator."""

    temperature: float
    max_new_tokens: int
    seed: int
    concurrency: int
    device: DeviceChoice
    is_base: bool


def evol(  # noqa: PLR0913 - one parameter an option
    pairs: Annotated[Path, typer.Argument(metavar="IN", help="Training pairs, as JSON lines: the seeds.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the new pairs go.")],
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="An OpenAI-compatible address [default: MENS_EVOL_URL].")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Which model of it [default: MENS_EVOL_MODEL].")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of a run of `mens train`, whose model writes.")
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="Its base model without the adapter.")] = False,
    device: Annotated[DeviceChoice, typer.Option(help="For --run-dir; never another one.")] = DeviceChoice.BEST,
    generations: Annotated[int, typer.Option(min=1, max=8, help="How often what was kept is evolved again.")] = 2,
    repairs: Annotated[
        int, typer.Option(min=0, max=2, help="How often a program that is no Vox is sent back with its errors.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order of seeds and what is done to each.")] = 0,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0: always the most likely token.")] = 0.7,
    max_answer_tokens: Annotated[int, typer.Option(min=16, max=8192, help="Tokens of a reply at most.")] = 1024,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Requests to the endpoint at once.")] = 4,
    max_requests: Annotated[int, typer.Option(min=0, help="Requests at most; two make a row.")] = 400,
    max_tokens: Annotated[int, typer.Option(min=0, help="Tokens at most, of requests and replies.")] = 1_000_000,
    max_minutes: Annotated[float, typer.Option(min=0, help="Minutes of this call at most.")] = 60.0,
    max_rows: Annotated[int, typer.Option(min=1, help="New pairs at most.")] = 200,
    heldout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out pairs that nothing new may be near to.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replies so far [default: FILE.ledger.jsonl].")
    ] = None,
    dropped: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where what was dropped goes, with its reasons.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as one JSON document.")] = False,
) -> None:
    """Let a model make requests harder or move them to other subjects, and answer them (Evol-Instruct).

    Needs EVOL_GATE=1. A new pair is kept when its program is accepted, declares what is asked for, differs from its
    parent in more than names and literals, passes its tests, and is near to no seed, held-out pair or benchmark. Each
    names its parent, the operator, the generation, the model and the seed. Replies are kept in a ledger, so a call that
    was cut short goes on where it was, and pays for nothing twice.

    Exit code 0: the new pairs are written. 1: the gate is closed, or the model does not answer. 2: the command was
    misused. 130: interrupted; run the same command to go on.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.evolution.evolve import Budget, Plan, ReplyChecks, Session, evolve
    from mens_pipeline.corpus.evolution.ledger import Ledger
    from mens_pipeline.corpus.evolution.neighbours import Neighbours
    from mens_pipeline.corpus.evolution.seeds import sort_seeds
    from mens_pipeline.corpus.schema.reading import read_pairs
    from mens_pipeline.evaluation.benchmark import protected_pairs
    from mens_pipeline.evaluation.execution import FEATURES
    from mens_pipeline.inference.answer_code import read_reply
    from mens_pipeline.language.interpreter import Sandbox
    from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
    from mens_pipeline.storage.jsonl import write_jsonl

    settings = load_settings()
    if not settings.evol_gate:
        raise RefusedError(_CLOSED)
    if output.resolve() == pairs.resolve():
        raise ConfigurationError(f"{output}: the seeds stand there. Name another file for the new pairs.")
    policy = load_pipeline_config(PIPELINE_CONFIG)
    generator = _generator(
        settings,
        endpoint or (settings.evol_url if run_dir is None else None),
        name or settings.evol_model,
        run_dir,
        _How(temperature, max_answer_tokens, seed, concurrency, device, is_base=base),
    )
    seeds = sort_seeds(read_pairs(pairs), policy.split, seed)
    tell(f"{len(seeds.pairs)} seeds, {generator.name} ({generator.digest[:40]})")
    protected = [*protected_pairs(settings.benchmark_dir), *(read_pairs(heldout) if heldout is not None else ())]
    neighbours = Neighbours(seeds, protected, policy.validate_.near_duplicate_threshold, policy.split)
    plan = Plan(
        seed=seed,
        generations=generations,
        repairs=repairs,
        budget=Budget(max_requests=max_requests, max_tokens=max_tokens, max_minutes=max_minutes, max_rows=max_rows),
    )
    desk = Session(generator, Ledger(ledger or output.with_suffix(".ledger.jsonl")), time.monotonic)
    try:
        with Sandbox(1, features=FEATURES) as sandbox:
            judges = ReplyChecks(read_reply, lambda program, mode: sandbox.run(program, mode=mode), neighbours)
            account = evolve(seeds, plan, desk, judges)
    except KeyboardInterrupt:
        tell("interrupted; run the same command to go on, what was answered is in the ledger")
        raise typer.Exit(INTERRUPTED) from None
    assert account.adds_up(), "an attempt was neither kept nor dropped"  # noqa: S101 - our own impossibility
    write_jsonl(output, account.kept)
    if dropped is not None:
        write_jsonl(dropped, account.dropped)
    not_seeds = {str(reason): count for reason, count in sorted(seeds.dropped.items())}
    document = {"num_seeds": len(seeds.pairs), "not_seeds": not_seeds, **account.as_json()}
    typer.echo(json.dumps(document, indent=2) if as_json else _summary(document, output))


def _generator(
    settings: "Settings", endpoint: str | None, name: str | None, run: Path | None, how: _How
) -> "Generator":
    if run is None and endpoint is not None and name is not None:
        from mens_pipeline.inference.endpoint import Endpoint

        return Endpoint(
            endpoint, name, settings.evol_api_key, how.max_new_tokens, how.temperature, concurrency=how.concurrency
        )
    if run is None or endpoint is not None:
        raise ConfigurationError(_WHO)
    return _local_generator(settings, run, how)


def _local_generator(settings: "Settings", run: Path, how: _How) -> "Generator":
    from mens_pipeline.configured import engine_of
    from mens_pipeline.inference.generation import Decoding
    from mens_pipeline.inference.local_generator import LocalGenerator
    from mens_pipeline.inference.prepare import KIND, Conditions
    from mens_pipeline.training.devices import resolve_device

    device = resolve_device(how.device, force_cpu=settings.backend == "cpu")
    decoding = Decoding(max_new_tokens=how.max_new_tokens, temperature=how.temperature, seed=how.seed)
    conditions = Conditions(decoding, device, settings.cache_root / f"{device.kind}.lock", engine_of(settings))
    work = settings.store_root.resolve() / KIND / f".work-{time.time_ns()}-evol"
    return LocalGenerator(run, "base" if how.is_base else "adapter", conditions, work, _launch)


def _launch(prepared: "PreparedGeneration", poll: Callable[[], None]) -> int:
    from mens_pipeline.inference.generation import MODULE
    from mens_pipeline.training.environment import training_environment
    from mens_pipeline.training.launch import run_child

    log = prepared.job.run_dir / "child.log"
    return run_child(MODULE, prepared.job_path, training_environment(), poll, _GRACE_SECONDS, log)


def _summary(account: dict[str, Any], output: Path) -> str:
    lines = [f"kept {share_text(account['kept'], account['seen'])}"]
    lines += [f"{count:>6}  {reason}" for reason, count in account["dropped"].items() if count]
    lines += [f"{operator:<18} {count:>6}" for operator, count in account["operators"].items()]
    new, tokens = account["num_new_requests"], account["num_tokens"]
    if account["num_repairs"]:
        lines.append(f"{account['num_repaired']} answers repaired, by {account['num_repairs']} requests")
    lines.append(f"{account['num_requests']} requests, {new} of them new, {tokens} tokens at most")
    lines.append("everything was tried" if account["ended_by"] is None else f"ended by {account['ended_by']}")
    return "\n".join([*lines, f"{account['kept']} pairs in {output}"])
