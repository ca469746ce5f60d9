"""The names that the matrices of an adapter have outside: those of the base as it is published.

Some bases also see. Here their text model alone is loaded, and its layers are called `model.layers`; in the checkpoint
they are `model.language_model.layers`. Servers load the checkpoint, and an adapter with other names does nothing there
without a word.
"""

from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.safetensors_header import shapes_in

_HEAD: Final = "base_model.model."
_LAYERS: Final = "layers."


def name_as_published(weights: Path, base: Path) -> bool:
    """Give the matrices of an adapter the names that their layers have in the checkpoint of the base.

    Args:
        weights: Of the adapter, as training wrote them; written anew where names differ.
        base: The folder of the base model.

    Returns:
        Whether names differed.

    Raises:
        RefusedError: A layer has no one place in the checkpoint.
    """
    published = {name for file in base.glob("*.safetensors") for name in shapes_in(file)}
    names = {name: _published(name, published, weights) for name in shapes_in(weights)}
    if all(name == new for name, new in names.items()):
        return False
    from safetensors.numpy import load_file, save_file  # noqa: PLC0415 - comes with the deep learning stack

    tensors = load_file(weights)
    save_file({names[name]: tensor for name, tensor in tensors.items()}, weights, metadata={"format": "pt"})
    return True


def _published(name: str, published: set[str], weights: Path) -> str:
    """Return the name of a matrix, with the words that the checkpoint puts before `layers.`."""
    layer, half = name.removeprefix(_HEAD).rsplit(".lora_", 1)
    if f"{layer}.weight" in published:
        return name
    tail = layer[layer.find(_LAYERS) :]
    found = sorted(other for other in published if other.endswith(f".{tail}.weight"))
    if len(found) != 1:
        places = ", ".join(found) or "none"
        raise RefusedError(f"{weights}: {layer} is no one layer of the published base ({places}). Report this.")
    return f"{_HEAD}{found[0].removesuffix('.weight')}.lora_{half}"
