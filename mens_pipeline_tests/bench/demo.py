"""The small adapter of `mens demo`, made from a run of `mens train` with the default recipe.

`python -m mens_pipeline_tests.bench.demo RUN [--rank 12]`

Each product of the two matrices of a layer is kept by its largest singular values (Eckart and Young 1936), so many as
the rank says, as bfloat16: with 12 of 16 it is 7.3 MB for SmolLM2-135M. What that costs is printed as the share of the
product that is lost, in the Frobenius norm. The tasks in `data/demo/tasks.jsonl` are written by hand and stay.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from mens_pipeline.cli.demo import CONTRACT, DEMO, contract_with
from mens_pipeline.models.adapter import ADAPTER, CONFIGURATION, MANIFEST, WEIGHTS, Adapter
from mens_pipeline.models.base import find_recorded_base
from mens_pipeline.models.tokenizer_file import FileTokenizer
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_text

if TYPE_CHECKING:
    from torch import Tensor

_MOST_BYTES = 8_000_000


def main() -> None:
    """Write adapter, manifest and contract into `data/demo`, and print what is lost and how large it is."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - it imports torch

    options = _options()
    load_settings()
    adapter = Adapter.open(options.run)
    weights, lost = cut_rank(load_file(adapter.weights), options.rank)
    folder = DEMO / ADAPTER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((adapter.folder / CONFIGURATION).read_text(encoding="utf-8"))
    scale = config["lora_alpha"] / config["r"]
    config |= {"r": options.rank, "lora_alpha": scale * options.rank, "base_model_name_or_path": None}
    write_text(folder / CONFIGURATION, json.dumps(config, indent=2, sort_keys=True) + "\n")
    base = find_recorded_base(adapter.manifest.base_model)
    contract = contract_with(adapter.manifest.base_model.sha256, FileTokenizer(base))
    write_text(DEMO / CONTRACT, contract.model_dump_json(indent=2) + "\n")
    write_text(DEMO / MANIFEST, json.dumps(_without_places(adapter, options.rank), indent=2) + "\n")
    size = (folder / WEIGHTS).stat().st_size
    print(f"{folder}: rank {options.rank}, {size:,} bytes, {lost:.2%} of the products lost")
    assert size <= _MOST_BYTES, f"expected at most {_MOST_BYTES:,} bytes; choose a lower rank"


def cut_rank(weights: "dict[str, Tensor]", rank: int) -> "tuple[dict[str, Tensor], float]":
    """Return LoRA matrices of a lower rank as bfloat16, and the share of all products that is lost."""
    from torch.linalg import svd

    cut, lost, whole = {}, 0.0, 0.0
    for name, first in weights.items():
        if ".lora_A." not in name:
            continue
        other = name.replace(".lora_A.", ".lora_B.")
        left, values, right = svd(weights[other].float() @ first.float(), full_matrices=False)
        root = values[:rank].sqrt()
        cut[name] = (root[:, None] * right[:rank]).bfloat16().contiguous()
        cut[other] = (left[:, :rank] * root).bfloat16().contiguous()
        lost, whole = lost + float(values[rank:].square().sum()), whole + float(values.square().sum())
    return cut, (lost / whole) ** 0.5


def _without_places(adapter: Adapter, rank: int) -> dict[str, object]:
    """Return the manifest without paths of the machine that trained."""
    document = json.loads((adapter.path / MANIFEST).read_text(encoding="utf-8"))
    document["base_model"]["path"] = "base_models"
    document["train_file"] = "train.jsonl"
    alpha = document["recipe"]["lora_alpha"] * rank // document["recipe"]["lora_r"]
    document["recipe"] |= {"lora_r": rank, "lora_alpha": alpha}
    return dict(document)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of `mens train` with the default recipe")
    parser.add_argument("--rank", type=int, default=12)
    return parser.parse_args()


if __name__ == "__main__":
    main()
