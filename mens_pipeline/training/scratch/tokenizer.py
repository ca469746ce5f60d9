"""VoxTokenizer as a tokenizer of Hugging Face. Only a process that trains or generates loads it."""
# ruff: noqa: TID253 - see above

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedTokenizer

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.vox_tokenizer import CONTROLS, EOS, PAD, UNK, VOCABULARY, encode
from mens_pipeline.language.vox_tokenizer import decode as text_of
from mens_pipeline.training.chat import TEMPLATE

_IDS = {token: number for number, token in enumerate(VOCABULARY)}


class VoxTokenizer(PreTrainedTokenizer):  # type: ignore[misc]
    """The table of `mens_pipeline.language.vox_tokenizer`, with padding, batches, files and a chat template.

    What a text says never becomes a control id: `[EOS]` in a program is five characters.
    """

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "vocab.json"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file: str | None = None, **options: Any) -> None:
        """Make the one tokenizer there is.

        Raises:
            ConfigurationError: The file holds another table.
        """
        if vocab_file is not None and json.loads(Path(vocab_file).read_text(encoding="utf-8")) != _IDS:
            advice = "Train the model anew, or use the version of mens-pipeline that trained it."
            raise ConfigurationError(f"{vocab_file}: not the table of docs/vox-tokenizer.md. {advice}")
        defaults = {
            "pad_token": CONTROLS[PAD],
            "unk_token": CONTROLS[UNK],
            "eos_token": CONTROLS[EOS],
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
            "padding_side": "right",
            "chat_template": TEMPLATE,
        }
        super().__init__(**{**defaults, **options})

    @property
    def vocab_size(self) -> int:
        """133."""
        return len(VOCABULARY)

    @property
    def vocab(self) -> dict[str, int]:
        """Token -> id; what `save_pretrained` writes."""
        return dict(_IDS)

    def get_vocab(self) -> dict[str, int]:
        """Return token -> id, with whatever was added."""
        return {**_IDS, **self.added_tokens_encoder}

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Return tokens side by side."""
        return "".join(tokens)

    def _tokenize(self, text: str, **_options: Any) -> list[str]:
        return [VOCABULARY[number] for number in encode(text)]

    def _convert_token_to_id(self, token: str) -> int:
        return _IDS.get(token, UNK)

    def _convert_id_to_token(self, index: int) -> str:
        return VOCABULARY[index]

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **options: Any) -> str:  # noqa: FBT001, FBT002
        """Decode as the library does with control tokens shown; without them, an unknown character shows as U+FFFD."""
        if not skip_special_tokens:
            return str(super()._decode(token_ids, skip_special_tokens=False, **options))
        ids: list[int] = [token_ids] if isinstance(token_ids, int) else token_ids
        return text_of(ids)
