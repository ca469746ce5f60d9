"""`mens generate-data` and `mens corpus evol`: synthetic pairs, from templates or from a model at an endpoint."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from mens_pipeline.cli.options import REQUIRED, Options, argument, declare_options, option, switch, take_options
from mens_pipeline.cli.terminal import interruptible, log_line, print_json, print_line, refuse_repeated, write_report
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.corpus.schema.records import read_pairs, read_records
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.generation import program_in
from mens_pipeline.settings import PIPELINE_CONFIG, Settings, load_settings
from mens_pipeline.storage.jsonl import open_rows, write_jsonl

if TYPE_CHECKING:
    from mens_pipeline.corpus.evolution.evolve import EvolutionAccount, Seeds


_EVERY_SECONDS: Final = 5.0  # seconds between two lines of progress


@declare_options
def generate_data(
    *,
    limit: int = option(REQUIRED, "Exact number of pairs.", ge=0, metavar="N"),
    output: Path = option(REQUIRED, "File for the pairs, as JSON lines.", "-o", "--output", metavar="FILE"),
    seed: int = option(0, "The same seed gives the same bytes.", ge=0),
    corpus: Path | None = option(
        None, "Extracted records; constructs that are rare in them come first.", metavar="FILE"
    ),
    report: Path | None = option(None, "File for the shares, as JSON.", metavar="FILE"),
    as_json: bool = switch("Print the shares as one JSON document.", "--json"),
) -> None:
    """Write synthetic pairs: tasks, templates and combinations that the front end accepts.

    `config/pipeline.yaml` sets the share of each kind. A task is a function with a stated behaviour: it was executed,
    its prompt may show examples, and `tests` holds its hidden tests. A program with tests of its own is written only if
    they pass.

    Exit code 0: exactly N pairs are written. 1: there are fewer different ones. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.extract.batches import Pool
    from mens_pipeline.corpus.synthesis.synthetic_corpus import write_synthetic

    refuse_repeated(output, corpus, report)
    records = []
    if corpus is not None:
        with open_rows(corpus) as lines:
            records = list(read_records(lines, corpus))
    policy = load_pipeline_config(PIPELINE_CONFIG).synthesize.model_copy(update={"limit": limit, "seed": seed})
    pool, progress = Pool(load_settings().num_workers), show_pairs(limit, time.monotonic)
    account = write_synthetic(output, records, policy, pool=pool, progress=progress)
    write_report(report, account)
    if as_json:
        print_json(account)
        return
    for kind, share in account["kinds"].items():
        print_line(f"{kind:<12} {share_text(share['count'], limit)}")
    print_line("construct         before  made")
    for name, share in account["constructs"].items():
        print_line(f"{name:<16} {share['before']:>7}  {share_text(share['count'], limit)}")
    drops = {"failing_tests": "a test fails", "semantic_errors": "an error in names or types"}
    for reason, details in drops.items():
        if account[reason]:
            log_line(f"dropped {sum(account[reason].values())} more: {details}")
    print_line(f"{account['num_pairs']} pairs in {output}")


def show_pairs(limit: int, clock: Callable[[], float]) -> Callable[[int], None]:
    """Return a callback that prints the number of pairs every few seconds, with an estimate of the time left.

    The estimate ignores the preparation before the first pair, and starts after a few seconds.
    """
    first = shown = clock()

    def progress(number: int) -> None:
        nonlocal first, shown
        now = clock()
        first = now if number == 1 else first
        if now - shown >= _EVERY_SECONDS:
            shown, rate = now, (number - 1) / max(now - first, 1e-9)
            is_known = rate and now - first >= _EVERY_SECONDS
            forecast = f", {rate:.0f} a second, {(limit - number) / rate / 60:.1f} min to go" if is_known else ""
            log_line(f"{number} of {limit} pairs{forecast}")

    return progress


_CLOSED: Final = (
    "EVOL_GATE: not set, so no model writes training data. Parser and tests would check it, but no person would. "
    "Set EVOL_GATE=1 to allow it."
)
_WHO: Final = "No model is set. Pass --endpoint URL and --name MODEL, or set MENS_EVOL_URL and MENS_EVOL_MODEL."


class _EvolOptions(Options):
    pairs: Path = argument("Training pairs, as JSON lines: the seeds.", metavar="IN")
    output: Path = option(REQUIRED, "File for the new pairs.", "-o", "--output", metavar="FILE")
    endpoint: str | None = option(None, "An OpenAI-compatible address [default: MENS_EVOL_URL].", metavar="URL")
    name: str | None = option(None, "Model of the endpoint [default: MENS_EVOL_MODEL].", metavar="MODEL")
    generations: int = option(2, "Rounds of evolution, each on the pairs kept before.", ge=1, le=8)
    seed: int = option(0, "Random seed for the order of seeds and their operators.", ge=0)
    temperature: float = option(0.7, "0: always the most likely token.", ge=0, le=2)
    max_reply_tokens: int = option(1024, "Maximum tokens of a reply.", ge=16, le=8192)
    concurrency: int = option(4, "Requests to the endpoint at once.", ge=1, le=64)
    max_requests: int = option(400, "Maximum requests; a row takes two.", ge=0)
    max_tokens: int = option(1_000_000, "Maximum tokens of requests and replies.", ge=0)
    max_minutes: float = option(60.0, "Maximum minutes of this call.", ge=0)
    max_rows: int = option(200, "Maximum new pairs.", ge=1)
    heldout: Path | None = option(None, "Held-out pairs; new pairs must not resemble them.", metavar="FILE")
    ledger: Path | None = option(None, "Earlier replies [default: FILE.ledger.jsonl].", metavar="FILE")
    dropped: Path | None = option(None, "File for dropped pairs and their reasons.", metavar="FILE")
    as_json: bool = switch("Print the account as one JSON document.", "--json")


@take_options(_EvolOptions)
def evol(options: _EvolOptions) -> None:
    """Let a model make requests harder or move them to other subjects, and complete them (Evol-Instruct).

    Needs EVOL_GATE=1. A new pair is kept if its program is accepted, declares what was requested, differs from its
    parent in more than names and literals, passes its tests, and resembles no seed, held-out pair or benchmark task. It
    records its parent, operator, generation, model and seed. Replies are kept in a ledger, so an interrupted call
    continues without paying twice.

    Exit code 0: the new pairs are written. 1: the gate is closed, or the model does not respond. 2: the command was
    misused. 130: interrupted; run the same command to go on.
    """
    settings = load_settings()
    if not settings.evol_gate:
        raise RefusedError(_CLOSED)
    ledger = options.ledger or options.output.with_suffix(".ledger.jsonl")
    refuse_repeated(options.pairs, options.output, options.heldout, ledger, options.dropped)
    with interruptible("run the same command to resume; the ledger holds all replies so far"):
        seeds, account, num_new = _evolve(options, settings, ledger)
    account.check()
    write_jsonl(options.output, account.rows)
    if options.dropped is not None:
        write_jsonl(options.dropped, account.failures)
    not_seeds = {str(reason): count for reason, count in sorted(seeds.dropped.items())}
    document = {"num_seeds": len(seeds.pairs), "not_seeds": not_seeds, **account.as_json(), "num_new_requests": num_new}
    typer.echo(json.dumps(document, indent=2) if options.as_json else _summary(document, options.output))


def _evolve(options: _EvolOptions, settings: Settings, replies: Path) -> "tuple[Seeds, EvolutionAccount, int]":
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.evolution.evolve import (
        Budget,
        EvolutionPlan,
        Neighbours,
        Reading,
        Session,
        evolve,
        sort_seeds,
    )
    from mens_pipeline.evaluation.benchmark import protected_pairs
    from mens_pipeline.evaluation.judge import FEATURES, has_placeholder, is_refusal
    from mens_pipeline.inference.endpoint import ChatEndpoint, Ledger
    from mens_pipeline.language.interpreter import Sandbox

    url, model = options.endpoint or settings.evol_url, options.name or settings.evol_model
    if url is None or model is None:
        raise ConfigurationError(_WHO)
    key, length = settings.evol_api_key, options.max_reply_tokens
    ledger = Ledger(replies)
    generator = ChatEndpoint(url, model, ledger, key, length, options.temperature, concurrency=options.concurrency)
    policy = load_pipeline_config(PIPELINE_CONFIG)
    seeds = sort_seeds(read_pairs(options.pairs), policy.split, options.seed)
    log_line(f"{len(seeds.pairs)} seeds, {generator.name} ({generator.digest[:40]})")
    protected = [*protected_pairs(settings.benchmark_dir), *(read_pairs(options.heldout) if options.heldout else ())]
    neighbours = Neighbours(seeds, protected, policy.validate_.near_duplicate_threshold, policy.split)
    budget = Budget.model_validate(options.model_dump(include=set(Budget.model_fields)))
    plan = EvolutionPlan(seed=options.seed, generations=options.generations, budget=budget)

    def read_reply(text: str) -> Reading:
        program = program_in(text)
        return Reading(program=program, is_refusal=is_refusal(text), is_stub=has_placeholder(program))

    with Sandbox(1, features=FEATURES) as sandbox:
        session = Session(
            generator, time.monotonic, read_reply, lambda program, mode: sandbox.run(program, mode=mode), neighbours
        )
        account = evolve(seeds, plan, session)
    return seeds, account, ledger.num_new


def _summary(account: dict[str, Any], output: Path) -> str:
    lines = [f"kept {share_text(account['kept'], account['seen'])}"]
    lines += [f"{count:>6}  {reason}" for reason, count in account["dropped"].items() if count]
    lines += [f"{operator:<18} {count:>6}" for operator, count in account["operators"].items()]
    new, tokens = account["num_new_requests"], account["num_tokens"]
    lines.append(f"{account['num_requests']} requests, {new} of them new, up to {tokens} tokens")
    lines.append("all seeds were tried" if account["ended_by"] is None else f"stopped by {account['ended_by']}")
    return "\n".join([*lines, f"{account['kept']} pairs in {output}"])
