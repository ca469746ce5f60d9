"""Write the reference pages of the documentation and the schemas: `python -m mens_pipeline_tests.reference`."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mix import MixConfig
from mens_pipeline.corpus.curate.pipeline_config import PipelineConfig
from mens_pipeline.corpus.extract.forgotten import Forgotten
from mens_pipeline.delivery.retention import RetentionPolicy
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.promotion.policy import GatePolicy
from mens_pipeline.scratch.tokenizer import COMPOUNDS, VOCABULARY
from mens_pipeline.settings import PROJECT_ROOT, Settings
from mens_pipeline.training.presets import NamedRecipe
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.schemas import DOCUMENTS, SCHEMAS, schema_of

FOLDER: Final = PROJECT_ROOT / "docs"

_COMMANDS: Final = """\
# Commands

`make docs` writes this page from the command line itself; do not edit it.

Results go to stdout, progress and counts to stderr. Exit code 0: done. 1: something is rejected or refused. 2: the
command was misused. In a checkout the command is `.venv/bin/mens`.

| command | does |
|---|---|
"""

_SETTINGS: Final = """\
# Settings

`make docs` writes this page from the models that read the settings; do not edit it. All mistakes in a file or in the
environment, including unknown keys, are reported together.

## Environment variables

Relative defaults begin at the checkout. An installed wheel reads configuration and seed data from the package, and
writes below the user's data folder, `~/.local/share/mens-pipeline` on Linux.

"""

_AFTER_VARIABLES: Final = """
`MENS_TRAIN_FIELD` sets a field of the training recipe, such as `MENS_TRAIN_LEARNING_RATE=1e-4`. Dagster
reads `MENS_DAGSTER_POSTGRES_URL` (an instance in PostgreSQL, see [operations](../operations.md)), and the Hub's library
`HF_HUB_OFFLINE` (`1` turns the Hub off).
"""

_RECIPE: Final = """\
Each preset or domain sets some of these fields; `about` describes it, and `min_vram_gb` is the GPU memory from which
`auto` takes a preset. Precedence: a flag of `mens train` (`--set FIELD=VALUE`), then `MENS_TRAIN_FIELD`, then the
named recipe, then the preset, then the domain, then the default."""

_NAMED: Final = """\
Named recipes, which you can compare ([training](../training.md#experiments)). One is called `default`."""

_FILES: Final[Mapping[str, tuple[str, type[BaseModel]]]] = {
    "config/presets.yaml, config/domains.yaml": (_RECIPE, Recipe),
    "config/recipes.yaml": (_NAMED, NamedRecipe),
    "config/pipeline.yaml": ("Settings of the corpus stages.", PipelineConfig),
    "config/forgotten.yaml": ("A list of entries; `mens store forget` adds them.", Forgotten),
    "config/mix.yaml": ("The sources of the train set and their shares.", MixConfig),
    "config/evaluation.yaml": ("How models complete prompts, and prompts outside the eval suite.", EvaluationConfig),
    "config/gates.yaml": ("Requirements on data and models.", GatePolicy),
    "config/retention.yaml": ("How long the store and Dagster keep things.", RetentionPolicy),
}

_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def commands_page() -> str:
    """Return `commands.md`: every command with its arguments and options."""
    root = typer.main.get_command(app)
    leaves = list(_leaves(root, ("mens",)))
    overview = "".join(f"| [`{name}`](#{name.replace(' ', '-')}) | {_first_line(leaf)} |\n" for name, leaf in leaves)
    context = typer.Context(root)
    sections = (get_docs_for_click(obj=leaf, ctx=context, indent=1, call_prefix=_group(name)) for name, leaf in leaves)
    return _COMMANDS + overview + "\n" + "\n".join(section.rstrip() + "\n" for section in sections)


def settings_page() -> str:
    """Return `settings.md`: the environment variables, then the fields of every configuration file."""
    schema = Settings.model_json_schema()
    parts = [_SETTINGS, _table(schema, schema, "variable"), _AFTER_VARIABLES]
    for title, (about, model) in _FILES.items():
        schema = model.model_json_schema()
        parts.append(f"\n## {title}\n\n{about}\n\n{_table(schema, schema, 'field')}")
        for name, nested in schema.get("$defs", {}).items():
            if "properties" in nested:
                parts.append(f"\n### {name}\n\n{_table(nested, schema, 'field')}")
    return "".join(parts)


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, child in sorted(command.commands.items()):
            yield from _leaves(child, (*path, name))
    else:
        yield " ".join(path), command


def _group(name: str) -> str:
    return name.rpartition(" ")[0]


def _first_line(command: Any) -> str:
    return _cell(str(command.help).split("\n\n", maxsplit=1)[0])


def _table(model: Mapping[str, Any], schema: Mapping[str, Any], what: str) -> str:
    required = model.get("required", ())
    rows = (
        f"| `{name}` | {_type_of(node, schema)} | {'required' if name in required else _default_of(node)} "
        f"| {_cell(node.get('description', ''))} |\n"
        for name, node in model["properties"].items()
    )
    return f"| {what} | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _type_of(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        target = schema["$defs"][name]
        return f"[{name}](#{name.lower()})" if "properties" in target else _type_of(target, schema)
    if "anyOf" in node:
        return " or ".join(_type_of(choice, schema) for choice in node["anyOf"])
    if "enum" in node or "const" in node:
        return " or ".join(f"`{json.dumps(value)}`" for value in node.get("enum", [node.get("const")]))
    if node["type"] == "array":
        return f"list of {_type_of(node['items'], schema)}"
    if node["type"] == "object":
        return f"mapping to {_type_of(node['additionalProperties'], schema)}"
    bounds = [f"{sign} {node[key]:,}" for key, sign in _BOUNDS.items() if key in node]
    named = {"password": "secret", "path": "path"}.get(node.get("format", ""), node["type"])
    return " ".join([named, ", ".join(bounds)]).strip()


def _default_of(node: Mapping[str, Any]) -> str:
    if "default" not in node:
        return "computed"
    value = node["default"]
    if isinstance(value, str) and Path(value).is_relative_to(PROJECT_ROOT):
        value = Path(value).relative_to(PROJECT_ROOT).as_posix()
    return "none" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


_COMPOUNDS: Final = re.compile(r"(?<=<!-- compounds, by `make docs` -->\n```text\n).*?(?=```)", re.DOTALL)
_PER_LINE: Final = 6


def upstream_page() -> str:
    """Return `upstream.md` with the ids of VoxTokenizer's compounds; the rest of the page is written by hand."""
    page = (FOLDER / "upstream.md").read_text(encoding="utf-8")
    return _COMPOUNDS.sub(lambda _: compounds_text(), page)


def compounds_text() -> str:
    """Return the compounds of VoxTokenizer after their ids, a few on each line."""
    cells = [f"{number} {_visible(token)}".ljust(18) for number, token in enumerate(VOCABULARY) if token in COMPOUNDS]
    lines = ("".join(cells[start : start + _PER_LINE]).rstrip() for start in range(0, len(cells), _PER_LINE))
    return "".join(f"{line}\n" for line in lines)


def _visible(token: str) -> str:
    return token.replace("\n", "\\n").replace("\t", "\\t").replace(" ", "␣")


PAGES: Final = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "upstream.md": upstream_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    for name in DOCUMENTS:
        (SCHEMAS / f"{name}.schema.json").write_text(schema_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
