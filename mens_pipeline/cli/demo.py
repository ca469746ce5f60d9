"""`mens demo`: the first completions on this machine, of a small adapter that comes with the code."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.cli.options import Options, option, take_options
from mens_pipeline.cli.progress import choose_device, run_and_show
from mens_pipeline.cli.terminal import interruptible, log_line, print_line
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding, Syntax, as_served
from mens_pipeline.jobs.device import Device, DeviceChoice
from mens_pipeline.language import Mode, grammar_fingerprint
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import Tokenizer, Turn, encode_turns
from mens_pipeline.models.infill import Order, encode_infill_prompt
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline.storage.store import key_of
from mens_pipeline.storage.validation import Strict

if TYPE_CHECKING:
    from mens_pipeline.evaluation.infill import InfillTask
    from mens_pipeline.evaluation.results import InsertScore
    from mens_pipeline.evaluation.scores import Score
    from mens_pipeline.inference.generation import Completion, GenerationJob, Request

DEMO: Final = PROJECT_ROOT / "data" / "demo"
"""The adapter, what it was made for, and what it is asked."""
TASKS: Final = "tasks.jsonl"
CONTRACT: Final = "contract.json"
REMAKE: Final = "python -m mens_pipeline_tests.bench.demo RUN"
_TOKENS: Final = 160
_EXAMPLE: Final = ("fn half(n: int) to int {\n    ret", "\n}\n")


class DemoContract(Strict):
    """Base, prompt format and language that the adapter was trained with; with others it writes nonsense.

    Attributes:
        base_sha256: Of the folder of the base.
        prompt_sha256: Of the tokens of a prompt and of a cursor, as they are shown now.
        language_sha256: Of the grammar.
    """

    base_sha256: str
    prompt_sha256: str
    language_sha256: str


def contract_with(base_sha256: str, tokenizer: Tokenizer, order: Order) -> DemoContract:
    """Return the contract of this code with a base, and an adapter that is shown cursors in such an order."""
    turns = encode_turns(tokenizer, (Turn("system", SYSTEM_PROMPT), Turn("user", "Write a table.")))
    shown = {"prompt": turns, "cursor": encode_infill_prompt(tokenizer, *_EXAMPLE, 64, order)}
    return DemoContract(base_sha256=base_sha256, prompt_sha256=key_of(shown), language_sha256=grammar_fingerprint())


def refuse_stale(folder: Path, contract: DemoContract) -> None:
    """Refuse (`RefusedError`) an adapter that was made for something else than this code has."""
    made_for = DemoContract.model_validate_json((folder / CONTRACT).read_text(encoding="utf-8")).model_dump()
    now = contract.model_dump()
    differing = [name.removesuffix("_sha256") for name in now if now[name] != made_for[name]]
    if differing:
        advice = f"Make it again from a run of `mens train`: {REMAKE}."
        raise RefusedError(f"{folder}: made for another {' and '.join(differing)} than this code has. {advice}")


class DemoOptions(Options):
    """Options of `mens demo`."""

    device: DeviceChoice = option(DeviceChoice.CPU, "The CPU is fast enough for ten completions.")


@take_options(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Let a small adapter that comes with the code complete five prompts and five lines, and check each.

    The base model is fetched once, as `mens run` does. Each completion is shown with what the parser, its names and
    types, and its tests say, right and wrong ones. Nothing is sent anywhere.

    Exit code 0: shown. 1: the base cannot be had, or the adapter is stale.
    """
    from mens_pipeline.models.find_base import find_base_model

    begin, settings = time.monotonic(), load_settings()
    adapter = Adapter.open(DEMO)
    wanted = adapter.manifest.base_model
    base = find_base_model(wanted.name, wanted.revision, settings.cache_root / "base_models", log_line)
    refuse_stale(DEMO, contract_with(base.sha256, FileTokenizer(base.path), adapter.manifest.infill_order))
    device = choose_device(options.device, settings)
    pairs = [*read_pairs(DEMO / TASKS)]
    requests = {
        "prompts": [task.request for task in _prompt_tasks(pairs)],
        "lines": [task.request(adapter.manifest.recipe.infill_window) for task in _line_tasks(pairs)],
    }
    written = complete_here(adapter, requests, _TOKENS, device, settings.cache_root)
    scored = [*_score_prompts(pairs, written), *_score_lines(pairs, written)]
    result = adapter.manifest.result
    print_line(f"\n{wanted.name} with an adapter of {result.num_steps} steps, not evaluated on this machine\n")
    for number, (lines, _) in enumerate(scored, start=1):
        print_line(f"{number}. " + "\n".join(lines) + "\n")
    good = sum(is_good for _, is_good in scored)
    folder = DEMO.relative_to(Path.cwd()) if DEMO.is_relative_to(Path.cwd()) else DEMO
    print_line(f"{good} of {len(scored)} are right, after {time.monotonic() - begin:.0f} s. Next:")
    print_line(f"  mens serve --run-dir {folder}   ask it at http://localhost:8080, or from your editor")
    print_line("  mens run                         train one on this machine, and evaluate it")


def complete_here(
    adapter: Adapter, requests: "Mapping[str, Sequence[Request]]", most_tokens: int, device: Device, cache: Path
) -> "list[Completion]":
    """Generate all completions as they are served, in one process that leaves nothing behind."""
    from mens_pipeline.evaluation.eval_results import completions_of
    from mens_pipeline.inference.prepare import Conditions, generate_all, prepare_generation
    from mens_pipeline.storage.store import ArtifactStore

    conditions = Conditions(Decoding(max_new_tokens=most_tokens, syntax=Syntax.FALLBACK), device, device.lock_in(cache))

    def launch(job: "GenerationJob") -> int:
        return run_and_show(job.path, lambda _event: None, num_ranks=job.devices)

    with TemporaryDirectory(prefix="mens-") as folder, interruptible("run the same command again"):
        asked = {
            name: prepare_generation("adapter", adapter, prompts, conditions, label=name)
            for name, prompts in requests.items()
        }
        made = generate_all(asked, ArtifactStore(Path(folder)), launch, conditions.lock_path)
        return [*as_served(completions_of(made.values()))]


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
    """Yield what is shown of each prompt, and whether all is right."""
    from mens_pipeline.evaluation.evaluate import score_completions

    tasks = _prompt_tasks(pairs)
    names = {task.id for task in tasks}
    for task, score in zip(tasks, score_completions(tasks, [one for one in written if one.task in names]), strict=True):
        yield [task.prompt, *_indent(score.program), describe_score(score)], score.passed


def describe_score(score: "Score") -> str:
    """Format what parser, names and tests say of a completion."""
    from mens_pipeline.evaluation.scores import count_from_one

    """Say what parser, names and tests found."""
    parts = ["parses" if score.parses else f"does not parse: {count_from_one(score.error or '')}"]
    if score.semantic_error is not None:
        parts.append(count_from_one(score.semantic_error))
    if score.execution is not None:
        parts.append(f"tests {score.execution.num_passed}/{score.execution.num_tests}")
    return "   -> " + ", ".join(parts)


def _score_lines(pairs: Sequence[TrainingPair], written: "Sequence[Completion]") -> Iterator[tuple[list[str], bool]]:
    """Yield what is shown of each line, and whether it is what a person wrote there."""
    from mens_pipeline.evaluation.infill import score_inserts

    tasks = {task.id: task for task in _line_tasks(pairs)}
    for score in score_inserts("adapter", [*tasks.values()], [one for one in written if one.task in tasks]):
        task = tasks[score.task]
        before, after = task.prefix.rstrip("\n").splitlines()[-3:], task.suffix.splitlines()[:2]
        shown = "\n".join(before) + f"[{score.piece}]" + "\n".join(after)
        yield [f"{task.file}, the piece in brackets:", *_indent(shown), _describe_insert(score)], score.exact


def _describe_insert(score: "InsertScore") -> str:
    parts = ["accepted there" if score.parses else "not accepted there, so no editor shows it"]
    parts.append("exactly what a person wrote" if score.exact else f"a person wrote `{score.reference}`")
    return "   -> " + ", ".join(parts)


def _indent(program: str) -> list[str]:
    return [f"     {line}" for line in program.strip("\n").splitlines()]
