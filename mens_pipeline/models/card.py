"""The model card of an adapter or of a merged model, for people and for the Hub.

One template serves both. It names missing facts, such as figures before an evaluation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mens_pipeline.corpus.curate.mixed_train_set import report_beside
from mens_pipeline.language import visible_text
from mens_pipeline.models.adapter import ShownKind, TrainingManifest
from mens_pipeline.models.base import Base, FileTokenizer
from mens_pipeline.models.chat import format_of
from mens_pipeline.models.infill import PREFIX_FIRST, find_marks
from mens_pipeline.storage.store import digest_of

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

_TASK: Final = "text-generation"
_UNKNOWN: Final = "not stated"
_OF_THE_HUB: Final = ("cache", "hub", "wheel")

Form = Literal["adapter", "merged"]


class DataSource(NamedTuple):
    """A source of the train set: its file, its distinct rows, and its share of the set with repeats, 0 to 1."""

    name: str
    num_rows: int
    share: float


class CardScore(NamedTuple):
    """A score of base and model, formatted with intervals; `value` is the model's share, None if nothing was scored."""

    suite: str
    metric: str
    base: str
    model: str
    value: float | None


class Standing(NamedTuple):
    """Evaluation results of a model: scores, sampling, and the constructs that it never got right.

    The last three fields are the gate's verdict and the digest of `gate_receipt.json`; None without a verdict.
    """

    scores: tuple[CardScore, ...]
    how: str
    missing: tuple[str, ...]
    policy: str | None
    passed: bool | None
    verdict_sha256: str | None


def model_card(  # noqa: PLR0913 - the parts of a card
    manifest: TrainingManifest,
    form: Form = "adapter",
    *,
    sources: Sequence[DataSource] = (),
    standing: Standing | None = None,
    data_licence: str | None = None,
    tokenizer_in: Path | None = None,
) -> str:
    """Render a model card in Markdown, with the front matter of the Hub and without paths of this machine.

    `tokenizer_in` is the folder of the tokenizer; the card shows its infill marks if the model was trained on them.
    """
    base, recipe, result = manifest.base_model, manifest.recipe, manifest.result
    layers = recipe.target_modules if isinstance(recipe.target_modules, str) else ", ".join(recipe.target_modules)
    sees = base.architecture.endswith("ForConditionalGeneration")
    loss, kept = result.validation_loss, result.kept_step or result.num_steps
    rows = (
        ("base model", f"{plain(base_name(base))}, {plain(base.architecture)}, SHA-256 `{base.sha256[:12]}`"),
        ("revision of the base", plain(base.revision or _UNKNOWN)),
        ("licence of the base", plain(base.licence or _UNKNOWN)),
        ("licence of the data", plain(data_licence or _UNKNOWN)),
        ("method", recipe.method),
        ("adapter", f"rank {recipe.lora_r}, alpha {recipe.lora_alpha}, on {plain(layers)}"),
        ("rows", f"{result.num_train} of {result.num_rows}, longest {result.longest} tokens"),
        ("steps", f"{result.num_steps}, {result.trained_tokens} tokens in {result.seconds:.0f} s"),
        ("shown", plain(format_kinds(result.kinds))),
        ("learning rate", f"{recipe.learning_rate:g}, {plain(recipe.lr_scheduler_type)}"),
        ("loss", f"{result.train_loss:.4f} on average while training"),
        ("loss on other files", "not measured" if loss is None else f"{loss:.4f}, after step {kept}"),
        ("train set", f"SHA-256 `{manifest.train_sha256[:12]}`"),
        ("contract", f"`{manifest.contract_digest[:12]}`"),
    )
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown; untrusted names go through `plain`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = plain
    return environment.get_template("card.md.jinja").render(
        head=_head(manifest, form, standing).to_yaml(),
        manifest=manifest,
        base_name=base_name(base),
        is_merged=form == "merged",
        is_packed=recipe.quantization == "nf4",
        is_of_wheel=base.origin == "wheel",
        rows=rows,
        sources=tuple(sources),
        standing=standing,
        # The matrices of a pushed adapter are named for the class of the published base.
        auto_class="AutoModelForImageTextToText" if sees and standing is not None else "AutoModelForCausalLM",
        chat=format_of(manifest.chat_template),
        is_prefix_first=manifest.infill_order == PREFIX_FIRST,
        marks=find_marks(FileTokenizer(tokenizer_in)) if manifest.is_taught and tokenizer_in is not None else None,
    )


def mark_card(card: str, notice: str) -> str:
    """Put a notice, if there is one, above the first section of a model card."""
    before, heading, rest = card.partition("\n## ")
    return f"{before}\n> {plain(notice)}\n{heading}{rest}" if notice else card


def data_sources(manifest: TrainingManifest) -> tuple[DataSource, ...]:
    """Return the sources of the train set of an adapter; empty without a report for exactly this set."""
    train_file = manifest.train_file
    report = report_beside(train_file)
    if report is None or not train_file.is_file() or digest_of(train_file) != manifest.train_sha256:
        return ()
    used = (source for source in report.sources if source.emitted_lines)
    return tuple(DataSource(source.path, source.distinct_lines, source.share_of_output) for source in used)


def base_name(base: Base) -> str:
    """Return the public name of a base: its name on the Hub, or the last part of its path."""
    return base.name if base.origin in _OF_THE_HUB else Path(base.name).name


def format_kinds(kinds: Mapping[str, ShownKind]) -> str:
    """Format the kinds of rows by tokens shown: `task 45 % (63,000 tokens, 0.8 epochs), ...`."""
    return ", ".join(
        f"{name} {100 * kind.share:.0f} % ({kind.tokens_shown:,} tokens, {kind.epochs:.1f} epochs)"
        for name, kind in sorted(kinds.items(), key=lambda item: (-item[1].tokens_shown, item[0]))
    )


def never_shown(kinds: Mapping[str, ShownKind]) -> dict[str, int]:
    """Return kind -> number of rows, for kinds that training never used."""
    there = {name: kind.rows + kind.rows_too_long for name, kind in kinds.items() if not kind.tokens_shown}
    return {name: rows for name, rows in sorted(there.items()) if rows}


def format_never_shown(kinds: Mapping[str, ShownKind]) -> str:
    """Format the result of `never_shown`: `telemetry (372 rows), ...`."""
    return ", ".join(f"{name} ({rows} rows)" for name, rows in never_shown(kinds).items())


def _head(manifest: TrainingManifest, form: Form, standing: Standing | None) -> "ModelCardData":
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - takes a third of a second to load

    base = manifest.base_model
    results = [
        EvalResult(
            task_type=_TASK,
            dataset_type=score.suite.replace(" ", "-"),
            dataset_name=score.suite,
            metric_type=score.metric.replace(" ", "_"),
            metric_name=score.metric,
            metric_value=round(score.value, 4),
        )
        for score in (standing.scores if standing is not None else ())
        if score.value is not None
    ]
    return ModelCardData(
        base_model=base_name(base) if base.origin in _OF_THE_HUB else None,
        base_model_relation="finetune" if form == "merged" else "adapter",
        library_name="transformers" if form == "merged" else "peft",
        license=base.licence or "other",
        pipeline_tag=_TASK,
        tags=["vox", "code", "qlora"],
        model_name=manifest.name,
        eval_results=results or None,
    )


_MEANT: Final = re.compile(r"[&<>\[\]`|]")
"""Characters that start a tag, a link, an image, code or a cell."""


def plain(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    one_line = " ".join(visible_text(text).split())
    return _MEANT.sub(lambda match: f"&#{ord(match[0])};", one_line)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; callers escape cells with `plain`."""
    yield from (f"| {' | '.join(head)} |", "|---" * len(head) + "|")
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)
