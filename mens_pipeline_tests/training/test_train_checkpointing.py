"""Layers that recompute their activations: their number does not change the adapter."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline_tests.delivery.vision_base import write_vision_base
from mens_pipeline_tests.training.runs import prepare_fast, train_here, weights_of

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "hybrid"])
def test_the_adapter_does_not_depend_on_recomputed_layers(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Bit for bit, with dropout and the loss of a GPU."""
    from mens_pipeline.training import train  # noqa: PLC0415 - loads the deep learning stack

    base = tiny_base if kind == "llama" else write_vision_base(tmp_path / "vision")
    make_trainer, weights, computed = train._trainer, [], []  # noqa: SLF001 - to look at what it makes
    trainers: list[Any] = []

    def make_gpu_trainer(*given: Any) -> Any:
        trainers.append(make_trainer(*given))
        trainers[-1].scores_labels_alone = False
        return trainers[-1]

    monkeypatch.setattr(train, "_trainer", make_gpu_trainer)
    for every_n in (None, 0, 1, 2):
        fields: dict[str, Any] = {"max_steps": 3, "lora_dropout": 0.1, "checkpoint_every_n_layers": every_n}
        run = prepare_fast(base, tmp_path / str(every_n), **fields)
        train_here(run)
        weights.append(weights_of(run))
        layers = trainers[-1].model.get_base_model().model.layers
        computed.append([layer.gradient_checkpointing for layer in layers])

    number = len(computed[0])
    assert weights == weights[:1] * 4
    assert computed[:3] == [[False] * number, [False] * number, [True] * number]
    assert computed[3].count(True) == number // 2
