"""A plugin of pytest, `-p mens_pipeline_tests.without_torch`: the extras are as if they were not installed.

So `make quick` shows on every machine what it shows on one that has none of them.
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
"""What the extras `train`, `gpu` and `cluster` install, and the quick tests do without."""


class _NotInstalled(MetaPathFinder):
    """Finds none of the extras, before anybody else does."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Refuse a package of an extra (`ModuleNotFoundError`); leave all others to those who find them."""
        del path, target
        if fullname.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{fullname}: left out by `make quick`", name=fullname)


sys.meta_path.insert(0, _NotInstalled())
