"""JsonlDataLoader: rows that train, skipped rows with their reasons, and batches."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - batches are tensors

from mens_pipeline.corpus.schema.reasons import Skipped
from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.models.chat import IM_END, Encoded, render_prompt
from mens_pipeline.scratch.data import JsonlDataLoader
from mens_pipeline.scratch.tokenizer import EOS, PAD, decode
from mens_pipeline.training.common_trainer import pad_rows
from mens_pipeline_tests.training.runs import pairs


def _write_rows(folder: Path, *rows: Any) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def _row(response: str = "type A = int", prompt: str = "Write it.", **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "response": response, **fields}


def test_a_row_is_a_conversation_and_its_end(tmp_path: Path) -> None:
    (row,) = JsonlDataLoader(_write_rows(tmp_path, _row(prompt="Say [EOS]")), system_prompt="Be brief.")

    assert decode(row.prompt) == render_prompt("Be brief.", "Say [EOS]")
    assert decode(row.completion) == f"type A = int{IM_END}"
    assert row.completion[-1] == EOS
    assert EOS not in (*row.prompt, *row.completion[:-1])


@pytest.mark.seed_row(55)
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("no json", Skipped.NOT_A_PAIR),
        ("[1]", Skipped.NOT_A_PAIR),
        ({"prompt": "only"}, Skipped.NOT_A_PAIR),
        (_row(rating=2), Skipped.LOW_RATING),
        (_row('let a = "é"'), Skipped.NOT_ASCII),
        (_row("let a = 1\r\n"), Skipped.NOT_ASCII),
        (_row("x" * 500), Skipped.TOO_LONG),
    ],
)
def test_a_skipped_row_has_a_reason(tmp_path: Path, row: Any, reason: Skipped) -> None:
    loader = JsonlDataLoader(_write_rows(tmp_path, _row(), row, "", _row()), min_rating=3)

    assert len(loader) == 2
    assert loader.counts.dropped == {reason: 1}
    assert loader.counts.seen == 3
    assert loader.counts.num_lost == 0
    assert loader.account()["skipped"] == {str(other): int(other is reason) for other in Skipped}


def test_the_longest_row_that_fits_is_kept(tmp_path: Path) -> None:
    path = _write_rows(tmp_path, _row())
    length = len(JsonlDataLoader(path)[0])

    assert len(JsonlDataLoader(path, max_length=length)) == 1
    assert len(JsonlDataLoader(path, max_length=length - 1)) == 0
    assert len(JsonlDataLoader(_write_rows(tmp_path, _row(rating=1)))) == 1, "no rating is too low by default"


def test_unknown_characters_of_a_prompt_are_counted(tmp_path: Path) -> None:
    loader = JsonlDataLoader(_write_rows(tmp_path, _row(prompt="Größe, naïve")))

    assert loader.account()["num_unknown_characters"] == 3
    assert decode(loader[0].prompt).count("\N{REPLACEMENT CHARACTER}") == 3


def test_unreadable_input_is_an_error_with_its_place(tmp_path: Path) -> None:
    """A missing file, or with `strict` the first invalid line."""
    with pytest.raises(SourceNotFoundError, match=r"nothing\.jsonl: .*Name a readable file"):
        JsonlDataLoader(tmp_path / "nothing.jsonl")
    with pytest.raises(
        RefusedError, match=r"train\.jsonl:2: not a pair \(.* found list\)\. Run `mens corpus validate`"
    ):
        JsonlDataLoader(_write_rows(tmp_path, _row(), "[1]"), strict=True)


@pytest.mark.seed_row(55)
def test_rows_are_read_on_access(tmp_path: Path) -> None:
    path = _write_rows(tmp_path, *(pair.model_dump(mode="json") for pair in pairs(20)))
    loader = JsonlDataLoader(path)
    replies = [decode(loader[number].completion) for number in (19, 0, 7)]
    path.write_text(path.read_text().replace("return n + 0", "return n + 0 + 0", 1))

    assert [reply.split("(")[0] for reply in replies] == ["fn f19", "fn f0", "fn f7"]
    assert len(list(JsonlDataLoader(path))) == 20
    with pytest.raises(RefusedError, match=r"train\.jsonl:1: changed while it was in use\. Run the command again"):
        loader[0]


@pytest.mark.seed_row(55)
def test_a_batch_is_padded_and_its_prompts_are_masked() -> None:
    batch = pad_rows([Encoded((5, 6, 7), (8, 2)), Encoded((5,), (6, 2))], PAD)
    expected: dict[str, list[list[int]]] = {
        "input_ids": [[5, 6, 7, 8, 2], [5, 6, 2, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
        "labels": [[-100, -100, -100, 8, 2], [-100, 6, 2, -100, -100]],
    }

    assert {name: tensor.tolist() for name, tensor in batch.items()} == expected
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
