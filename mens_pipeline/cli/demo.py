"""`mens demo` and `mens generate`: programs from a model on this machine, checked as they are served."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import typer

from mens_pipeline.cli.options import Options, argument, option, switch, take_options
from mens_pipeline.cli.terminal import REFUSED, choose_device, interruptible, log_line, print_line, run_and_show
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding, Syntax, as_served
from mens_pipeline.jobs.device import Device, DeviceChoice
from mens_pipeline.jobs.progress import log_wait
from mens_pipeline.language import Mode, grammar_fingerprint
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import Tokenizer, Turn, encode_turns
from mens_pipeline.models.infill import Order, encode_infill_prompt
from mens_pipeline.settings import PROJECT_ROOT, Settings, load_settings, open_store
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.store import key_of
from mens_pipeline.storage.validation import Strict

if TYPE_CHECKING:
    from mens_pipeline.evaluation.infill import InfillTask
    from mens_pipeline.evaluation.scores import Score
    from mens_pipeline.inference.generation import Completion, GenerationJob, Request


DEMO: Final = PROJECT_ROOT / "data" / "demo"
"""Folder of the adapter, its contract, and its tasks."""
TASKS: Final = "tasks.jsonl"
CONTRACT: Final = "contract.json"
REMAKE: Final = "python -m mens_pipeline_tests.bench.demo RUN"
_TOKENS: Final = 160
_EXAMPLE: Final = ("fn half(n: int) to int {\n    ret", "\n}\n")


class DemoContract(Strict):
    """Hashes of base, prompt format and grammar that the adapter was trained with; with others it writes nonsense.

    `prompt_sha256` covers the tokens of an example prompt and of an example infill prompt.
    """

    base_sha256: str
    prompt_sha256: str
    language_sha256: str


def build_contract(base_sha256: str, tokenizer: Tokenizer, order: Order) -> DemoContract:
    """Build the contract of this code with a base; `order` is the order of prefix and suffix in infill prompts."""
    turns = encode_turns(tokenizer, (Turn("system", SYSTEM_PROMPT), Turn("user", "Write a table.")))
    shown = {"prompt": turns, "cursor": encode_infill_prompt(tokenizer, *_EXAMPLE, 64, order)}
    return DemoContract(base_sha256=base_sha256, prompt_sha256=key_of(shown), language_sha256=grammar_fingerprint())


def refuse_stale(folder: Path, contract: DemoContract) -> None:
    """Raise `RefusedError` if an adapter was made for another contract."""
    made_for = DemoContract.model_validate_json((folder / CONTRACT).read_text(encoding="utf-8")).model_dump()
    now = contract.model_dump()
    differing = [name.removesuffix("_sha256") for name in now if now[name] != made_for[name]]
    if differing:
        advice = f"Build it again from a run of `mens train`: {REMAKE}."
        raise RefusedError(f"{folder}: made for a different {' and '.join(differing)} than this code uses. {advice}")


class _DemoOptions(Options):
    device: DeviceChoice = option(DeviceChoice.CPU, "The CPU is fast enough for ten completions.")


@take_options(_DemoOptions)
def demo(options: _DemoOptions) -> None:
    """Let a small packaged adapter complete five prompts and five lines, and check each.

    The base model is downloaded once, as by `mens run`. Each completion, right or wrong, is shown with the verdicts
    of parser, name and type checks, and tests. Nothing is sent anywhere.

    Exit code 0: shown. 1: the base is not available, or the adapter is stale.
    """
    from mens_pipeline.models.find_base import find_base_model

    begin, settings = time.monotonic(), load_settings()
    adapter = Adapter.open(DEMO)
    wanted = adapter.manifest.base_model
    base = find_base_model(wanted.name, wanted.revision, settings.cache_root / "base_models", log_line)
    refuse_stale(DEMO, build_contract(base.sha256, FileTokenizer(base.path), adapter.manifest.infill_order))
    device = choose_device(options.device, settings)
    pairs = [*read_pairs(DEMO / TASKS)]
    requests = {
        "prompts": [task.request for task in _prompt_tasks(pairs)],
        "lines": [task.request(adapter.manifest.recipe.infill_window) for task in _line_tasks(pairs)],
    }
    written = _complete_here(adapter, requests, _TOKENS, device, settings.cache_root)
    scored = [*_score_prompts(pairs, written), *_score_lines(pairs, written)]
    result = adapter.manifest.result
    print_line(f"\n{wanted.name} with an adapter trained for {result.num_steps} steps, not evaluated on this machine\n")
    for number, (lines, _) in enumerate(scored, start=1):
        print_line(f"{number}. " + "\n".join(lines) + "\n")
    good = sum(is_good for _, is_good in scored)
    folder = DEMO.relative_to(Path.cwd()) if DEMO.is_relative_to(Path.cwd()) else DEMO
    print_line(f"{good} of {len(scored)} are correct, in {time.monotonic() - begin:.0f} s. Next:")
    print_line(f"  mens serve --run-dir {folder}   try it at http://localhost:8080, or in your editor")
    print_line("  mens run                         train and evaluate an adapter on this machine")


def _complete_here(
    adapter: Adapter, requests: "Mapping[str, Sequence[Request]]", most_tokens: int, device: Device, cache: Path
) -> "list[Completion]":
    from mens_pipeline.evaluation.eval_results import read_completions
    from mens_pipeline.inference.prepare import Conditions, generate_all, prepare_generation
    from mens_pipeline.storage.store import ArtifactStore

    conditions = Conditions(Decoding(max_new_tokens=most_tokens, syntax=Syntax.FALLBACK), device, device.lock_in(cache))

    def launch(job: "GenerationJob") -> int:
        with log_wait("loading and completing", log_line):
            return run_and_show(job.path, lambda _event: None, num_ranks=job.devices)

    with TemporaryDirectory(prefix="mens-") as folder, interruptible("run the same command again"):
        asked = {
            name: prepare_generation("adapter", adapter, prompts, conditions, label=name)
            for name, prompts in requests.items()
        }
        made = generate_all(asked, ArtifactStore(Path(folder)), launch, conditions.lock_path)
        return [*as_served(read_completions(made.values()))]


def _prompt_tasks(pairs: Sequence[TrainingPair]) -> "tuple[Any, ...]":
    from mens_pipeline.evaluation.tasks import heldout_tasks

    return heldout_tasks(pair for pair in pairs if pair.infill is None)


def _line_tasks(pairs: Sequence[TrainingPair]) -> "Iterator[InfillTask]":
    from mens_pipeline.evaluation.infill import InfillTask

    for number, pair in enumerate(pairs):
        if pair.infill is not None and pair.source is not None:
            parts = (pair.prompt, pair.response, pair.infill.suffix)
            yield InfillTask(f"line/{number}", pair.source.path, pair.infill.kind, *parts, Mode.SOURCE, has_tests=False)


def _score_prompts(pairs: Sequence[TrainingPair], written: "Sequence[Completion]") -> Iterator[tuple[list[str], bool]]:
    from mens_pipeline.evaluation.evaluate import score_completions

    tasks = _prompt_tasks(pairs)
    names = {task.id for task in tasks}
    for task, score in zip(tasks, score_completions(tasks, [one for one in written if one.task in names]), strict=True):
        yield [task.prompt, *_indent(score.program), describe_score(score)], score.passed


def describe_score(score: "Score") -> str:
    """Format the verdicts of parser, names and tests on a completion."""
    from mens_pipeline.evaluation.scores import count_from_one

    parts = ["parses" if score.parses else f"does not parse: {count_from_one(score.error or '')}"]
    if score.semantic_error is not None:
        parts.append(count_from_one(score.semantic_error))
    if score.execution is not None:
        parts.append(f"tests {score.execution.num_passed}/{score.execution.num_tests}")
    return "   -> " + ", ".join(parts)


def _score_lines(pairs: Sequence[TrainingPair], written: "Sequence[Completion]") -> Iterator[tuple[list[str], bool]]:
    from mens_pipeline.evaluation.infill import score_inserts

    tasks = {task.id: task for task in _line_tasks(pairs)}
    for score in score_inserts("adapter", [*tasks.values()], [one for one in written if one.task in tasks]):
        task = tasks[score.task]
        before, after = task.prefix.rstrip("\n").splitlines()[-3:], task.suffix.splitlines()[:2]
        shown = "\n".join(before) + f"[{score.piece}]" + "\n".join(after)
        parts = ["parses at the cursor" if score.parses else "does not parse at the cursor, so no editor shows it"]
        parts.append("matches the original exactly" if score.exact else f"the original is `{score.reference}`")
        yield [f"{task.file}, piece in brackets:", *_indent(shown), "   -> " + ", ".join(parts)], score.exact


def _indent(program: str) -> list[str]:
    return [f"     {line}" for line in program.strip("\n").splitlines()]


class _GenerateOptions(Options):
    prompt: str = argument("Description of the program.", metavar="PROMPT")
    output: Path | None = option(None, "File for the program [default: stdout].", "-o", "--output", metavar="FILE")
    run_dir: Path | None = option(None, "A run of `mens train` [default: the champion].", metavar="DIR")
    device: DeviceChoice = option(DeviceChoice.BEST, "Device to use; `best` picks the best available one.")
    max_tokens: int = option(256, "Maximum tokens of the program.", ge=1, le=8_192)
    no_validate: bool = switch("Accept the completion even if it is not a program.")


@take_options(_GenerateOptions)
def generate(options: _GenerateOptions) -> None:
    """Let a model write one program, and check it.

    If its free completion is not a program, the model writes again with only tokens that lead to one, as in
    `mens serve`. Verdicts of parser, names and types go to stderr.

    Exit code 0: the program is written. 1: there is no program or no model. 2: the command was misused. 130:
    interrupted.
    """
    from mens_pipeline.evaluation.judge import judge
    from mens_pipeline.evaluation.tasks import Suite, Task

    settings = load_settings()
    adapter = open_adapter(options.run_dir, settings, f"Name a run with --run-dir, such as {DEMO}.")
    task = Task("prompt", Suite.BENCHMARK, "", "", "", options.prompt, name=None, mode=Mode.SOURCE, reference="")
    device, requests = choose_device(options.device, settings), {"prompt": [task.request]}
    (written,) = _complete_here(adapter, requests, options.max_tokens, device, settings.cache_root)
    score = judge(task, written)
    log_line(describe_score(score).strip())
    if not (score.parses or options.no_validate):
        raise typer.Exit(REFUSED)
    if options.output is not None:
        write_text(options.output, score.program.rstrip("\n") + "\n")
    else:
        print_line(score.program.rstrip("\n"))


def open_adapter(run_dir: Path | None, settings: Settings, advice: str) -> Adapter:
    """Open the adapter of a run, or the champion; without one, a `RefusedError` ends with `advice`."""
    from mens_pipeline.promotion.history import find_champion

    if run_dir is not None:
        return Adapter.open(run_dir)
    store = open_store(settings)
    champion = find_champion(store)
    if champion is None:
        raise RefusedError(f"{store.root}: no adapter is promoted. {advice}")
    return Adapter.open(champion.path)
