"""Whether an adapter belongs to its base: read from the headers of both, before any weight is loaded.

PEFT takes an adapter with layers that the base lacks, and one that lacks layers, with a warning at most; what comes out
is another model than the one that was trained.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.adapter_config import read_adapter_config
from mens_pipeline.inference.prepare import WEIGHTS
from mens_pipeline.training.recorded_base import recorded_base
from mens_pipeline.training.safetensors_header import Shape, shapes_in

_MATRIX: Final = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<half>[AB])\.weight")
_SHOWN: Final = 3
_ADVICE: Final = "Name the run that it was trained in."


def refuse_misfit(adapter: Path, manifest: dict[str, Any]) -> None:
    """Nothing, if an adapter can be merged into its base.

    Args:
        adapter: Its folder.
        manifest: The training manifest, which names the base.

    Raises:
        RefusedError: The base is gone, another one or leads to one, or the adapter is not what training writes, or
            does not fit it.
    """
    base = manifest["base_model"]
    path = recorded_base(base)
    config = read_adapter_config(adapter)
    weights = adapter / WEIGHTS
    shapes = {name: shape for file in sorted(path.glob("*.safetensors")) for name, shape in shapes_in(file).items()}
    reasons = list(_objections(shapes_in(weights), shapes, config.r))
    if reasons:
        shown = "; ".join(reasons[:_SHOWN])
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise RefusedError(f"{weights}: does not fit {base['name']}: {shown}{more}. {_ADVICE}")


def _objections(adapter: dict[str, Shape], base: dict[str, Shape], rank: int) -> Iterator[str]:
    """Yield a reason for everything that does not fit, a phrase each."""
    halves: dict[str, dict[str, Shape]] = {}
    for name, shape in adapter.items():
        found = _MATRIX.fullmatch(name)
        if found is None:
            yield f"{name} is no LoRA matrix"
        else:
            halves.setdefault(found["layer"], {})[found["half"]] = shape
    if not halves:
        yield "it holds no LoRA matrix at all"
    for layer, pair in halves.items():
        targets = _targets(layer, base)
        if not targets:
            yield f"the base has no {layer}"
        elif set(pair) != {"A", "B"}:
            yield f"{layer} has one matrix of two"
        elif not any(pair == {"A": (rank, target[1]), "B": (target[0], rank)} for target in targets):
            yield f"{layer} is {targets[0]}, the adapter has {pair['B']} by {pair['A']}, of rank {rank}"


def _targets(layer: str, base: dict[str, Shape]) -> list[Shape]:
    """Return the shapes of what may be the weight of a layer: some families put other words before `layers.`."""
    exact = base.get(f"{layer}.weight")
    if exact is not None:
        return [exact]
    tail = layer[layer.find("layers.") :] if "layers." in layer else layer
    return [shape for name, shape in base.items() if name.endswith(f".{tail}.weight")]
