"""Convert rows of upstream's toolchain to ours.

Every stage reads its rows through here, so that validation, mix and training see the same rows.
"""

import math
import re
from collections.abc import Mapping
from itertools import dropwhile
from typing import Any, Final

OTHER_NAMES: Final = {
    "const_decl": "const",
    "docs": "documentation",
    "endpoint": "server",
    "enum": "type",
    "fn": "function",
    "func": "function",
    "search_index": "index",
    "server_fn": "server",
    "struct": "type",
    "type_def": "type",
    "vector_index": "index",
}
"""Category of other toolchains -> our name."""

_ALIASES: Final = {"instruction": "prompt", "output": "response", "completion": "response"}
_CODE: Final = "vox_codegen"
_LANES: Final = {
    "tool_trace": "vox_tooling",
    "speech": "vox_speech",
    "asr_refine": "vox_speech",
    "documentation": "vox_docs_qa",
    **dict.fromkeys(("rust_source", "rust_pairs", "rust_doc"), "rust_context"),
}
"""Part of a category -> the lane of a row without one. The first match counts; other rows are code. Upstream does the
same, except for Rust, which is not Vox."""

_FAMILIES: Final = {"vox_docs_qa": "docs_qa", "vox_tooling": "tool_trace", "vox_speech": "speech_to_code"}
"""Lane -> the `task_family` of a row without one; by default vox_codegen for code, else the lane."""

LANES_OF_CODE: Final = frozenset(
    (_CODE, "vox_lang_tier_b", "vox_logic_composition", "vox_speech", "vox_trajectory_repair")
)
"""Lanes whose responses are Vox unless a row says otherwise; upstream counts all but vox_docs_qa."""

_VERSION: Final = re.compile(r"(?:vox_dogfood_)?v?[01]")


def without_nulls(row: Any) -> Any:
    """Return a row without its null fields; upstream writes null for unknown values."""
    return {name: value for name, value in row.items() if value is not None} if isinstance(row, Mapping) else row


def is_upstream_record(row: Any) -> bool:
    """Return whether a row is a record of upstream: a program with the constructs that it shows."""
    return isinstance(row, Mapping) and "text" not in row and "constructs" in row and isinstance(row.get("code"), str)


def pair_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a pair; our own rows stay unchanged, except for nulls.

    A conversation (`messages`, `turns`) becomes its last completion, with all earlier turns in the prompt. Missing
    fields are filled in: the lane by category as upstream does, `task_family` and `response_mode` by lane. A newer
    `schema_version`, or a conversation without a completion, raises `ValueError`.
    """
    fields: dict[str, Any] = without_nulls(row)
    fields |= _conversation(fields)
    asked = fields.get("instruction"), fields.get("input")
    if "prompt" not in fields and all(isinstance(text, str) for text in asked):
        fields["prompt"] = "\n\n".join(filter(None, asked))
    fields |= {name: fields[other] for other, name in _ALIASES.items() if other in fields and name not in fields}
    category = str(fields.get("category", "")).lower()
    lane = str(fields.setdefault("lane", next((_LANES[part] for part in _LANES if part in category), _CODE)))
    fields.setdefault("task_family", _FAMILIES.get(lane, _CODE if lane in LANES_OF_CODE else lane))
    is_code = lane in LANES_OF_CODE and "asr_refine" not in category
    if fields.setdefault("response_mode", "code_only" if is_code else "prose_only") == "structured":
        fields["response_mode"] = "prose_only"
    if category in OTHER_NAMES:
        fields["category"] = OTHER_NAMES[category]
    if isinstance(difficulty := fields.get("difficulty"), float) and math.isfinite(difficulty):
        # Between 0 and 1 it is a share of the scale, which ends at 10.
        fields["difficulty"] = max(1, round(10 * difficulty)) if 0 <= difficulty < 1 else round(difficulty)
    if not _VERSION.fullmatch(str(version := fields.pop("schema_version", 1))):
        expected = "expected vox_dogfood_v1 or earlier"
        raise ValueError(f"schema_version {version!r}: {expected}. Remove it to read the row by its fields")
    return fields


def _conversation(fields: dict[str, Any]) -> dict[str, str]:
    found = [turns for name in ("messages", "turns") if (turns := fields.pop(name, None))]
    if not found:
        return {}
    turns = found[0] if isinstance(found[0], list) else [found[0]]
    keys = ("role", "content")
    if not all(isinstance(turn, Mapping) and all(isinstance(turn.get(key), str) for key in keys) for turn in turns):
        raise ValueError("messages: expected a list of turns, each with the texts `role` and `content`")
    said = [(turn["role"], turn["content"]) for turn in turns]
    if said[-1][0] != "assistant":
        said.append(("assistant", fields.get("response") or fields.get("output") or ""))
    # This pipeline has its own system prompt.
    *before, (_, response) = dropwhile(lambda turn: turn[0] == "system", said)
    if not before or not response:
        raise ValueError("messages: expected a turn of the user, and a completion of the assistant after it")
    texts = [text for _, text in before] if len(before) == 1 else [f"{role}: {text}" for role, text in before]
    return {"prompt": "\n\n".join(texts), "response": response}
