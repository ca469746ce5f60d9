"""A micro-batch that does not fit the memory of a GPU is computed in parts, and the update stays the same."""

from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - these tests train

from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.training.runs import prepare_fast, train_here
from mens_pipeline_tests.training.test_training import _adapter

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device that runs out of memory on more rows than the only number of this list, and is tried like a GPU."""
    from mens_pipeline.training.sft import PlannedTrainer  # noqa: PLC0415 - loads the deep learning stack

    most, made, computed = [8], PlannedTrainer.__init__, PlannedTrainer.compute_loss

    def init_untried(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        self.num_parts = 0

    def compute_limited(self: Any, model: Any, inputs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        loss = computed(self, model, inputs, *arguments, **named)
        if model.training and len(inputs["input_ids"]) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss

    monkeypatch.setattr(PlannedTrainer, "__init__", init_untried)
    monkeypatch.setattr(PlannedTrainer, "compute_loss", compute_limited)
    return most


def test_rows_are_halved_until_they_fit(tiny_base: Path, tmp_path: Path, small_memory: list[int]) -> None:
    """Four rows that fit one by one train the adapter of four rows at once, and count as many tokens."""
    whole, cut = (prepare_fast(tiny_base, tmp_path / name, number=8, max_steps=2) for name in ("whole", "cut"))
    first = train_here(whole)
    small_memory[0] = 1
    second = train_here(cut)
    left, right = _adapter(whole), _adapter(cut)

    assert second["num_tokens"] == first["num_tokens"] > 0
    for name, tensor in left.items():
        torch.testing.assert_close(right[name], tensor, rtol=1e-4, atol=1e-6)


def test_a_row_that_does_not_fit_is_refused(tiny_base: Path, tmp_path: Path, small_memory: list[int]) -> None:
    small_memory[0] = 0

    with pytest.raises(RefusedError, match=r"a row of \d+ tokens does not fit into GPU memory. Lower"):
        train_here(prepare_fast(tiny_base, tmp_path, number=8, max_steps=2))


def test_memory_that_runs_out_later_ends_the_run(
    tiny_base: Path, tmp_path: Path, small_memory: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the step, its rows and the missing memory; the same command resumes."""
    run = prepare_fast(tiny_base, tmp_path, number=8, max_steps=2)
    small_memory[0] = 1
    with monkeypatch.context() as patch:
        patch.setattr("mens_pipeline.training.sft.PlannedTrainer._fits", lambda *_: True)
        with pytest.raises(
            RefusedError, match=r"^step 1: 4 rows of \d+ tokens in 1 part.*allocate 2\.00 GiB\. Use .* It resumes"
        ):
            train_here(run)

    assert train_here(run)["num_steps"] == 2
