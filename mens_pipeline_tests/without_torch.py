"""A plugin of pytest, `-p mens_pipeline_tests.without_torch`: it hides the packages of the extras.

So `make quick` gives the same result on every machine.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

EXTRAS: Final = frozenset(
    (
        *("accelerate", "bitsandbytes", "datasets", "gguf", "llguidance", "obstore", "pandas", "peft", "ray"),
        *("safetensors", "tokenizers", "torch", "transformers", "trl"),
    )
)
"""Packages of the extras `train`, `gpu` and `cluster`, which the quick tests do not need."""


class _NotInstalled(MetaPathFinder):
    """Refuses the extras before other finders find them."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Refuse a package of an extra (`ModuleNotFoundError`); leave all others to the other finders."""
        del path, target
        if fullname.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{fullname}: left out by `make quick`", name=fullname)


sys.meta_path.insert(0, _NotInstalled())
