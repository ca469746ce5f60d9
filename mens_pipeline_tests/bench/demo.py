"""Make the small adapter of `mens demo` from a run of `mens train` with the default recipe.

`python -m mens_pipeline_tests.bench.demo RUN [--rank 14]`

Each product of the two matrices of a layer keeps its `--rank` largest singular values (Eckart and Young 1936), in eight
bits per value (E4M3, Micikevicius et al. 2022): 7.7 MB for Qwen2.5-Coder-0.5B. The bench prints the lost share of the
products, in the Frobenius norm. `data/demo/tasks.jsonl` is written by hand and not changed.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from mens_pipeline.cli.demo import CONTRACT, DEMO, build_contract
from mens_pipeline.models.adapter import ADAPTER, CONFIGURATION, MANIFEST, WEIGHTS, Adapter
from mens_pipeline.models.base import FileTokenizer, find_recorded_base
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_text

if TYPE_CHECKING:
    from torch import Tensor

_MOST_BYTES = 8_000_000
_FACTOR = 16
"""Factor on both matrices, which moves their values into the range that eight bits represent to a sixteenth."""


def main() -> None:
    """Write adapter, manifest and contract into `data/demo`, and print the size and the lost share."""
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
    config |= {"r": options.rank, "lora_alpha": scale * options.rank / _FACTOR**2, "base_model_name_or_path": None}
    write_text(folder / CONFIGURATION, json.dumps(config, indent=2, sort_keys=True) + "\n")
    base = find_recorded_base(adapter.manifest.base_model)
    contract = build_contract(adapter.manifest.base_model.sha256, FileTokenizer(base), adapter.manifest.infill_order)
    write_text(DEMO / CONTRACT, contract.model_dump_json(indent=2) + "\n")
    write_text(DEMO / MANIFEST, json.dumps(_without_places(adapter, options.rank), indent=2) + "\n")
    size = (folder / WEIGHTS).stat().st_size
    print(f"{folder}: rank {options.rank}, {size:,} bytes, {lost:.2%} of the products lost")
    assert size <= _MOST_BYTES, f"expected at most {_MOST_BYTES:,} bytes; choose a lower rank"


def cut_rank(weights: "dict[str, Tensor]", rank: int) -> "tuple[dict[str, Tensor], float]":
    """Return LoRA matrices of a lower rank in eight bits, and the lost share of all products."""
    from torch import float8_e4m3fn
    from torch.linalg import qr, svd

    cut, lost, whole = {}, 0.0, 0.0
    for name, first in weights.items():
        if ".lora_A." not in name:
            continue
        other = name.replace(".lora_A.", ".lora_B.")
        product = weights[other].float() @ first.float()
        # The product has the rank of the adapter, so a matrix of that size has the same singular values.
        (outer, upper), (inner, lower) = qr(weights[other].float()), qr(first.float().T)
        left, values, right = svd(upper @ lower.T)
        root = _FACTOR * values[:rank].sqrt()
        cut[name] = (root[:, None] * (right @ inner.T)[:rank]).to(float8_e4m3fn).contiguous()
        cut[other] = ((outer @ left)[:, :rank] * root).to(float8_e4m3fn).contiguous()
        rest = product - cut[other].float() @ cut[name].float() / _FACTOR**2
        lost, whole = lost + float(rest.square().sum()), whole + float(product.square().sum())
    return cut, (lost / whole) ** 0.5


def _without_places(adapter: Adapter, rank: int) -> dict[str, object]:
    document = json.loads((adapter.path / MANIFEST).read_text(encoding="utf-8"))
    document["base_model"]["path"] = "base_models"
    document["train_file"] = "train.jsonl"
    alpha = document["recipe"]["lora_alpha"] * rank // document["recipe"]["lora_r"]
    document["recipe"] |= {"lora_r": rank, "lora_alpha": alpha}
    return dict(document)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of `mens train` with the default recipe")
    parser.add_argument("--rank", type=int, default=14)
    return parser.parse_args()


if __name__ == "__main__":
    main()
