"""Whether what makes a GPU fast is installed: where it is not, libraries go on without a word, and much slower."""

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from mens_pipeline.training.launch import own_environment

_LINEAR: Final = "linear_attention"
_COMPILERS: Final = ("cc", "gcc", "clang")


def kernels_found() -> dict[str, bool]:
    """Kernel packages, and the C compiler that Triton calls at run time: whether each is there."""
    compiler = own_environment().get("CC")
    return {
        "flash_linear_attention": find_spec("fla") is not None,
        "causal_conv1d": find_spec("causal_conv1d") is not None,
        "c_compiler": any(map(shutil.which, (compiler,) if compiler else _COMPILERS)),
    }


def kernel_notes(config: Mapping[str, Any], found: Mapping[str, bool]) -> list[str]:
    """List what a base needs on a GPU and is not installed, a sentence each.

    Args:
        config: The configuration of the base.
        found: What `kernels_found` gave.
    """
    notes = []
    if not found["c_compiler"]:
        notes.append("no C compiler: Triton, which computes the loss on a GPU, needs one. Install gcc, or set CC")
    if _LINEAR not in (config.get("text_config", config).get("layer_types") or ()):
        return notes
    if not found["flash_linear_attention"]:
        slow = (
            "its layers of linear attention run as plain PyTorch, several times slower and with five times the memory"
        )
        notes.append(f'flash-linear-attention is not installed: {slow}. Install it: pip install -e ".[gpu]"')
    if not found["causal_conv1d"]:
        notes.append("causal-conv1d is not installed: its convolutions run as plain PyTorch, a little slower")
    return notes
