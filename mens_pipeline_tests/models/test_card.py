"""The card of a model: metadata for the Hub, and text for people."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from mens_pipeline.models.adapter import ShownKind, TrainingManifest
from mens_pipeline.models.card import CardScore, DataSource, Form, Standing, base_name, model_card
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.qlora_adapter import training_manifest
from mens_pipeline_tests.training.runs import prepare_fast
from mens_pipeline_tests.training.small_folder import write_folder
from mens_pipeline_tests.training.test_manifest import RESULT

_STANDING = Standing(
    scores=(
        CardScore("held-out prompts of the workspace", "parse rate", "4/112 (3.6 %)", "82/112 (73.2 %)", 0.73214),
        CardScore("benchmark", "pass@1", "0/86 (0.0 %)", "18/86 (20.9 %)", 0.2093),
        CardScore("benchmark", "parse rate", "0/0", "0/0", None),
    ),
    how="greedily",
    missing=("routes", "form"),
    policy="ci",
    passed=True,
    verdict_sha256="e" * 64,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """A run on a base of a few bytes."""
    folder = tmp_path_factory.mktemp("card")
    return prepare_fast(write_folder(folder / "base"), folder)


def _manifest(run: PreparedRun, base: dict[str, Any] | None = None, **result: Any) -> TrainingManifest:
    manifest = training_manifest(run, {**RESULT, **result}, "0123abcd")
    return manifest.model_copy(update={"base_model": manifest.base_model.model_copy(update=base)})


def _hub_manifest(run: PreparedRun, **fields: Any) -> TrainingManifest:
    return _manifest(run, {"name": "org/model", "origin": "hub", "licence": "apache-2.0", **fields})


def _parse_table(card: str) -> dict[str, str]:
    cells = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return {cell[0]: cell[1] for cell in cells if len(cell) == 2}


def test_the_metadata_is_readable_by_the_hub(run: PreparedRun) -> None:
    data = ModelCard(model_card(_hub_manifest(run), standing=_STANDING)).data
    heldout, benchmark = data.eval_results or []

    assert (data.base_model, data.base_model_relation, data.license) == ("org/model", "adapter", "apache-2.0")
    assert (data.library_name, data.pipeline_tag, data.tags) == ("peft", "text-generation", ["vox", "code", "qlora"])
    assert (heldout.metric_type, heldout.metric_value) == ("parse_rate", 0.7321)
    assert (benchmark.metric_type, benchmark.metric_value) == ("pass@1", 0.2093)
    assert (heldout.dataset_name, benchmark.dataset_name) == ("held-out prompts of the workspace", "benchmark")


def test_the_card_of_a_merged_model_mentions_no_adapter(run: PreparedRun) -> None:
    card = model_card(_hub_manifest(run), "merged")
    data = ModelCard(card).data

    assert (data.library_name, data.base_model_relation) == ("transformers", "finetune")
    assert "PeftModel" not in card
    assert "the template adds the system prompt" in card


def test_the_table_describes_the_training(run: PreparedRun) -> None:
    rows = _parse_table(model_card(_manifest(run), data_licence="cc-by-4.0"))

    assert rows["licence of the base"] == "not stated"
    assert rows["licence of the data"] == "cc-by-4.0"
    assert rows["method"] == "QLoRA: NF4 with double quantisation"
    assert rows["adapter"] == "rank 4, alpha 8, on all-linear"
    assert rows["rows"] == "15 of 16, longest 77 tokens"
    assert rows["steps"] == "4, 1234 tokens in 62 s"
    assert rows["shown"] == "task 75 % (9,000 tokens, 0.5 epochs), raw 25 % (3,000 tokens, 1.5 epochs)"
    assert rows["loss"] == "0.5124 on average while training"
    assert rows["loss on other files"] == "not measured"
    assert rows["contract"] == f"`{run.job.contract_digest[:12]}`"
    manifest = _manifest(run, validation_loss=0.25, kept_step=40)
    once = {"bnb_4bit_use_double_quant": False, "target_modules": ["q_proj", "v_proj"]}
    recipe = manifest.recipe.model_copy(update=once)
    rows = _parse_table(model_card(manifest.model_copy(update={"recipe": recipe})))
    assert rows["loss on other files"] == "0.2500, after step 40"
    assert rows["method"] == "QLoRA: NF4"
    assert rows["adapter"].endswith("on q_proj, v_proj")


def test_scores_are_listed_next_to_those_of_the_base(run: PreparedRun) -> None:
    """With missing constructs, the verdict and its hash, and sources with their rows."""
    card = model_card(_hub_manifest(run), standing=_STANDING, sources=[DataSource("pairs.jsonl", 1953, 0.7143)])

    assert "| held-out prompts of the workspace | parse rate | 4/112 (3.6 %) | 82/112 (73.2 %) |" in card
    assert "No completion that parses contains: routes, form." in card
    assert "(policy `ci`) **passed**" in card
    assert "e" * 64 in card
    assert "| pairs.jsonl | 1953 | 71.4 % |" in card


def test_missing_information_is_stated(run: PreparedRun) -> None:
    card = model_card(_manifest(run))

    assert "This model has not been evaluated." in card
    assert "The sources of the train set are not recorded." in card
    assert "No gate" not in card
    unjudged = Standing(_STANDING.scores, "greedily", (), None, None, None)
    assert "No gate has judged this model." in model_card(_manifest(run), standing=unjudged)


def test_a_card_holds_no_path_of_this_machine(run: PreparedRun) -> None:
    """A base in a folder is named by the last part of its path, and the metadata names no base."""
    manifest = _manifest(run)
    card = model_card(manifest, standing=_STANDING)

    assert Path(manifest.base_model.name).is_absolute()
    assert base_name(manifest.base_model) == "base"
    assert str(run.job.run_dir.parent) not in card
    assert ModelCard(card).data.base_model is None
    card = model_card(_hub_manifest(run, origin="wheel", revision="a-package==1.0"))
    assert "The base came from the package index (a-package==1.0), in about four bits" in card
    assert "package index" not in model_card(_hub_manifest(run))


_HOSTILE = "x](http://evil.example) ![i](http://evil.example/i.png) <img src=x>\n\n# New | a |\n```\n<b>"


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_hostile_values_add_no_tag_and_no_image(run: PreparedRun, form: Form) -> None:
    """In any field of the manifest; markup in a block of code has no effect."""
    manifest = _hub_manifest(run, origin="wheel", architecture=_HOSTILE, revision=_HOSTILE, licence=_HOSTILE)
    recipe = manifest.recipe.model_copy(update=dict.fromkeys(("target_modules", "lr_scheduler_type"), _HOSTILE))
    kinds = {_HOSTILE: ShownKind(share=1.0, tokens_shown=9, epochs=1.0)}
    result = manifest.result.model_copy(update={"kinds": kinds})
    changes = {"name": _HOSTILE, "system_prompt": _HOSTILE, "recipe": recipe, "result": result}
    manifest = manifest.model_copy(update=changes)
    tokens = MarkdownIt("commonmark").enable("table").parse(ModelCard(model_card(manifest, form)).text)
    inner = [part for token in tokens for part in (token, *(token.children or ()))]
    headings = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]

    assert not {token.type for token in inner} & {"image", "html_inline", "html_block", "link_open"}
    assert not [heading for heading in headings if heading.startswith("New")]
    assert len([token for token in tokens if token.type == "fence"]) == 3
    assert {token.info for token in tokens if token.type == "fence"} == {"json", "jinja", "python"}


def test_the_card_explains_completion_at_a_cursor(run: PreparedRun) -> None:
    """If the model was trained for it, with the marks of its tokenizer."""
    trained = _manifest(run, kinds={"infill": {"tokens_shown": 9, "share": 0.5, "epochs": 1.0}})

    assert "<suffix>TEXT AFTER THE CURSOR<prefix>TEXT BEFORE THE CURSOR<middle>" in model_card(
        trained, tokenizer_in=run.job.base_path
    )
    assert "llama-server --spm-infill" in model_card(trained, tokenizer_in=run.job.base_path)
    turned = model_card(trained.model_copy(update={"infill_order": "prefix_first"}), tokenizer_in=run.job.base_path)
    assert "<prefix>TEXT BEFORE THE CURSOR<suffix>TEXT AFTER THE CURSOR<middle>\n```" in turned
    assert "--spm-infill" not in turned
    assert "At a cursor" not in model_card(_manifest(run), tokenizer_in=run.job.base_path)
