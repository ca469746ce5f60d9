"""A base model for code that does not load it: a configuration, a tokenizer, and a few bytes of weights."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel

from mens_pipeline.models.base import Base
from mens_pipeline.models.chat import IM_END, IM_START

_TEXTS = (
    "fn add(a: int, b: int) to int {\n    return a + b\n}\n\n\nsystem\nuser\nassistant\n",
    "Write a function that adds two numbers.\nYou write Vox. Answer with code alone.\n",
)
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 8,
    "vocab_size": 320,
}


class Encoder:
    """A tokenizer of the library `tokenizers`, as the project uses it."""

    def __init__(self, special: Sequence[str] = (IM_START, IM_END), chat_template: str | None = None) -> None:
        """Merges of bytes, learnt from a few lines, with words split as GPT-2 splits them."""
        self.chat_template = chat_template
        self.inner = Tokenizer(models.BPE())
        self.inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.inner.decoder = ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=list(special),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        self.inner.train_from_iterator(_TEXTS * 3, trainer)

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """The added tokens by their ids."""
        return dict(self.inner.get_added_tokens_decoder())

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text."""
        return list(self.inner.encode(text, add_special_tokens=add_special_tokens).ids)

    def id_of(self, token: str) -> int:
        """Return the id of a known token."""
        found = self.inner.token_to_id(token)
        assert found is not None
        return int(found)


def with_shapes(*shapes: list[int]) -> bytes:
    """A safetensors file of tensors of these shapes, without values."""
    header = json.dumps({f"t{number}": {"shape": shape} for number, shape in enumerate(shapes)}).encode()
    return len(header).to_bytes(8, "little") + header


FIM_MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
"""Of a base that was pretrained to complete at a cursor."""


def write_folder(
    folder: Path, weights: bytes | None = None, special: Sequence[str] = (IM_START, IM_END), **config: Any
) -> Path:
    """Write a base model that can be described, not loaded; by default with the header of one small matrix."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **config}))
    (folder / "model.safetensors").write_bytes(with_shapes([4, 8]) if weights is None else weights)
    Encoder(special).inner.save(str(folder / "tokenizer.json"))
    return folder


def described_base(path: Path = Path("base"), **fields: Any) -> Base:
    """The description of a base model."""
    usual: dict[str, Any] = {
        "name": "org/model",
        "revision": "main",
        "path": path,
        "origin": "hub",
        "sha256": "b" * 64,
        "licence": "apache-2.0",
        "architecture": "LlamaForCausalLM",
        "num_layers": 2,
        "num_heads": 4,
        "hidden_size": 8,
        "vocab_size": 100,
        "num_parameters": 2000,
    }
    return Base(**{**usual, **fields})
