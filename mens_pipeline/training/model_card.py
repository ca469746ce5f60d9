"""The card of a model for people and for the Hub: an adapter, or an adapter merged into its base.

There is one template. What is not known yet, such as figures before a model is judged, is said to be missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mens_pipeline.training.chat import TEMPLATE
from mens_pipeline.training.markdown import plain
from mens_pipeline.training.told import told_kinds

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

_TASK: Final = "text-generation"
_UNKNOWN: Final = "not stated"
_FOLDER: Final = Path(__file__).parent
_PAGE: Final = "model_card.md.jinja"
_OF_THE_HUB: Final = ("cache", "hub", "wheel")

Form = Literal["adapter", "merged"]


@dataclass(frozen=True, slots=True)
class DataSource:
    """One source of the train set.

    Attributes:
        name: Its file.
        num_rows: Different rows that it gave.
        share: Of the train set, 0 to 1, with repeats.
    """

    name: str
    num_rows: int
    share: float


@dataclass(frozen=True, slots=True)
class Score:
    """One figure, of the base and of the model that the card is about.

    Attributes:
        suite: What was asked: `held-out prompts`.
        metric: What was measured: `parse rate`.
        base: As people read it, with its interval.
        model: The same of the model.
        value: The share alone; None over nothing.
    """

    suite: str
    metric: str
    base: str
    model: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Evaluation results of a model.

    Attributes:
        scores: Its figures.
        how: How it answered: `greedily`.
        missing: Constructs that no accepted answer shows.
        policy: What it was judged by; None without a verdict.
        passed: What the verdict says; None without one.
        verdict_sha256: Of `gate_receipt.json`; None without one.
    """

    scores: tuple[Score, ...]
    how: str
    missing: tuple[str, ...]
    policy: str | None
    passed: bool | None
    verdict_sha256: str | None


def model_card(
    manifest: dict[str, Any],
    form: Form = "adapter",
    *,
    sources: Sequence[DataSource] = (),
    standing: Standing | None = None,
    data_licence: str | None = None,
) -> str:
    """Write the card of a model, with the head that the Hub reads.

    Args:
        manifest: What `training_manifest` gave.
        form: What is described: the adapter alone, or merged into its base.
        sources: What the train set was made of; empty when that is not on record.
        standing: How well it does; None before it is judged.
        data_licence: Of the workspace that it learnt from; None when nobody said.

    Returns:
        Markdown that holds no path of a machine.
    """
    base, recipe, result, hashes = _shown(
        (
            *(manifest["base_model"], manifest["recipe"], manifest["result"]),
            {name: manifest[name][:12] for name in ("train_sha256", "contract_digest")},
        )
    )
    validation = result["validation_loss"]
    rows = (
        ("base model", f"{plain(base_name(manifest))}, {base['architecture']}, SHA-256 `{base['sha256'][:12]}`"),
        ("revision of the base", base["revision"] or _UNKNOWN),
        ("licence of the base", base["licence"] or _UNKNOWN),
        ("licence of the data", plain(data_licence or _UNKNOWN)),
        ("method", f"QLoRA: NF4{' with double quantisation' if recipe['bnb_4bit_use_double_quant'] else ''}"),
        ("adapter", f"rank {recipe['lora_r']}, alpha {recipe['lora_alpha']}, on {_named(recipe['target_modules'])}"),
        ("rows", f"{result['num_train']} of {result['num_rows']}, longest {result['longest']} tokens"),
        ("steps", f"{result['num_steps']}, {result['trained_tokens']} tokens in {result['seconds']:.0f} s"),
        *((("shown", plain(told_kinds(manifest["result"]["kinds"]))),) if manifest["result"].get("kinds") else ()),
        ("learning rate", f"{recipe['learning_rate']:g}, {recipe['lr_scheduler_type']}"),
        ("loss", f"{result['train_loss']:.4f} on average while training"),
        ("loss on other files", f"{validation:.4f}" if validation is not None else "not measured"),
        ("train set", f"SHA-256 `{hashes['train_sha256']}`"),
        ("contract", f"`{hashes['contract_digest']}`"),
    )
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown; what a stranger may have named goes through `plain`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = plain
    return environment.get_template(_PAGE).render(
        head=_head(manifest, form, standing).to_yaml(),
        manifest=manifest,
        base_name=base_name(manifest),
        is_merged=form == "merged",
        is_of_wheel=base["origin"] == "wheel",
        rows=rows,
        sources=tuple(sources),
        standing=standing,
        # Matrices of an adapter that is sent are named for the class that the base is published as.
        auto_class=_class_of(base["architecture"]) if standing is not None else "AutoModelForCausalLM",
        # Manifests of adapters that were trained before bases that think were asked in their own form say nothing.
        template=manifest.get("chat_template", TEMPLATE),
    )


def _class_of(architecture: str) -> str:
    """Return the class that loads a base as it is published."""
    sees = architecture.endswith("ForConditionalGeneration")
    return "AutoModelForImageTextToText" if sees else "AutoModelForCausalLM"


def base_name(manifest: dict[str, Any]) -> str:
    """Return the public name of a base: its name on the Hub, or that of its folder without the rest of the path."""
    base = manifest["base_model"]
    return str(base["name"]) if base["origin"] in _OF_THE_HUB else Path(base["name"]).name


def _shown(value: Any) -> Any:
    """Escape every text in a part of a manifest, which anybody may have written, for Markdown."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    return tuple(map(_shown, value)) if isinstance(value, list | tuple) else value


def _named(modules: Any) -> str:
    return modules if isinstance(modules, str) else ", ".join(modules)


def _head(manifest: dict[str, Any], form: Form, standing: Standing | None) -> "ModelCardData":
    """Build the head of the model card, which the Hub reads."""
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - takes a third of a second to load

    base = manifest["base_model"]
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
        base_model=base_name(manifest) if base["origin"] in _OF_THE_HUB else None,
        base_model_relation="finetune" if form == "merged" else "adapter",
        library_name="transformers" if form == "merged" else "peft",
        license=base["licence"] or "other",
        pipeline_tag=_TASK,
        tags=["vox", "code", "qlora"],
        model_name=manifest["name"],
        eval_results=results or None,
    )
