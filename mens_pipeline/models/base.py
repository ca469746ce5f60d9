"""A base model as a folder on this machine.

A training manifest records its base as a `Base`, and `find_recorded_base` finds the folder again by its digest.
Tokenizer and chat template are read without loading the deep learning stack.
"""

import hashlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.files import open_regular, read_regular
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.store import key_of
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from tokenizers import AddedToken

HUB: Final = "hub"
"""Cache folder for downloads from the Hub, in the layout of `huggingface_hub`."""

RECORD: Final = "base_model.json"
"""File next to the weights that describes them. It is written last: without it a folder is incomplete."""

_ADAPTER: Final = "adapter_config.json"
_LONGEST_CONFIG: Final = 1_048_576
_LONGEST_HEADER: Final = 100_000_000
"""Bytes of the header of a safetensors file; the limit of the library."""

_LONGEST_TEMPLATE: Final = 10_000_000
"""Bytes of a template or of the options of a tokenizer."""

_LARGEST_TOKENIZER: Final = 100_000_000
"""Bytes; the largest known vocabularies need a third of this."""

_MOST_DIMENSIONS: Final = 8
_LARGEST: Final = 2**40
_NEEDED: Final = ("config.json", "tokenizer.json", "*.safetensors")
_SIZES: Final = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
_DIGESTED: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt")
_SETTLED_NS: Final = 2_000_000_000
"""A file that changed more recently may change again with the same time: some disks count in steps of two seconds."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]*$")]
Shape = tuple[int, ...]


def _check_path(path: Any) -> Any:
    if not isinstance(path, str | Path) or not str(path) or min(str(path)) < " ":
        raise ValueError("Input should be a path, a string of at least one character and no control characters")
    return path


RecordedPath = Annotated[Path, Field(strict=False), BeforeValidator(_check_path)]

_places: Final[list[Path]] = []
"""Caches in which this process looks for bases, from the settings."""


class Recorded(BaseModel):
    """A part of a document that a stranger may have written: known fields are checked, other fields are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, protected_namespaces=(), allow_inf_nan=False)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that were read or set, in JSON types."""
        return self.model_dump(mode="json", exclude_unset=True)


class Base(Recorded):
    """A base model."""

    name: Word = Field(description="The requested name.")
    revision: Word | None = Field(description="Commit, tag or branch; null for a folder.")
    path: RecordedPath = Field(description="Its folder on the machine that wrote the document.")
    origin: Word = Field(description="`folder`, `cache`, `hub` or `wheel`.")
    sha256: Digest = Field(description="Digest of all files that affect its output.")
    licence: Word | None = Field(description="Licence from the model card; null if it names none.")
    architecture: Word
    num_layers: Count
    num_heads: Count
    hidden_size: Count
    vocab_size: Count
    num_parameters: Count


def describe_base(name: str, revision: str | None, path: Path, origin: str, licence: str | None) -> Base:
    """Describe the base model in a folder; raise `RefusedError` if it is not a base model."""
    refuse_missing(path)
    text, architecture = refuse_unfit(path)
    try:
        return Base(
            name=name,
            revision=revision,
            path=path,
            origin=origin,
            sha256=digest_of_folder(path),
            licence=licence,
            architecture=architecture,
            num_layers=text["num_hidden_layers"],
            num_heads=text["num_attention_heads"],
            hidden_size=text["hidden_size"],
            vocab_size=text["vocab_size"],
            num_parameters=sum(map(num_parameters_in, path.glob("*.safetensors"))),
        )
    except ValidationError as error:
        raise RefusedError(f"{path}: not a base model ({errors_in(error)}). Choose another base model.") from error


def refuse_missing(path: Path) -> None:
    """Raise `RefusedError` if a folder lacks a file of a base model."""
    missing = missing_files(path)
    if missing:
        advice = "A base model needs config.json, tokenizer.json and weights as safetensors."
        raise RefusedError(f"{path}: no {', no '.join(missing)}. {advice}")


def refuse_unfit(path: Path) -> tuple[dict[str, Any], str]:
    """Raise `RefusedError` unless a folder holds a causal language model that loads no other model and no code.

    Returns the text part of the configuration, and the name of the architecture.
    """
    if (path / _ADAPTER).exists():
        # The library would load the model that this file names.
        raise RefusedError(f"{path}: an adapter of another model (found {_ADAPTER}). Name that model, or merge them.")
    config = configuration_of(path)
    text = config.get("text_config", config)
    architecture = str(next(iter(config.get("architectures") or []), "an unnamed architecture"))
    if "auto_map" in config:
        raise RefusedError(f"{path}: its configuration requires custom code. Choose a model without custom code.")
    if not architecture.endswith(("ForCausalLM", "ForConditionalGeneration")):
        raise RefusedError(f"{path}: {architecture} is not a causal language model. Choose another base model.")
    unsaid = [key for key in _SIZES if not isinstance(text.get(key), int)]
    if unsaid:
        raise RefusedError(f"{path}: config.json has no {', no '.join(unsaid)}. Choose a model of another family.")
    return text, architecture


def configuration_of(path: Path) -> dict[str, Any]:
    """Read the configuration of a model; raise `RefusedError` for an unknown layout."""
    config = read_object(path / "config.json", _LONGEST_CONFIG, "Fetch the model again.")
    is_laid_out = isinstance(config.get("text_config", {}), dict)
    if not is_laid_out or not isinstance(config.get("architectures", []), list | None):
        raise RefusedError(f"{path}: config.json is not the configuration of a model. Fetch the model again.")
    return config


def read_object(path: Path, most_bytes: int, advice: str) -> dict[str, Any]:
    """Read a JSON object from an untrusted file; raise a `RefusedError` that ends with the advice."""
    try:
        document = json.loads(read_regular(path, most_bytes))
    except (OSError, ValueError, RecursionError) as error:
        found = (error.strerror or "not readable") if isinstance(error, OSError) else f"not JSON ({error})"
        raise RefusedError(f"{path}: {found}. {advice}") from error
    if not isinstance(document, dict):
        raise RefusedError(f"{path}: expected a JSON object, found {type(document).__name__}. {advice}")
    return document


def digest_of_folder(path: Path, *, in_full: bool = False) -> str:
    """Return the hexadecimal SHA-256 over all files that affect the output of a model.

    Without `in_full`, return the cached digest if inode, size and times of all files are unchanged.
    """
    digest, began = hashlib.sha256(), time.time_ns()
    names = {file.name: file for pattern in _DIGESTED for file in path.glob(pattern) if file.name != RECORD}
    try:
        stamps = _read_stamps(names)
        kept = _places[0] / "digests" / key_of(stamps) if _places else None
        with suppress(OSError):
            if kept and not in_full and (known := re.fullmatch(b"[0-9a-f]{64}", read_regular(kept, 64))):
                return known[0].decode()
        for name, file in sorted(names.items()):
            # Follow links: the cache of the Hub consists of them.
            with open_regular(file) as content:
                digest.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
        is_settled = max((times[-1] for times in stamps.values()), default=began) < began - _SETTLED_NS
        if kept and is_settled and _read_stamps(names) == stamps:
            with suppress(ConfigurationError):  # the cache only saves time
                write_text(kept, digest.hexdigest())
    except OSError as error:
        found = error.filename or path
        raise RefusedError(f"{found}: {error.strerror}. Remove it, or fetch the model again.") from error
    return digest.hexdigest()


def _read_stamps(files: Mapping[str, Path]) -> dict[str, list[int]]:
    """Return the stat fields that change with each file, by name; programs cannot set the last one, ctime."""
    found = {name: file.stat() for name, file in files.items()}
    return {name: [it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns] for name, it in found.items()}


def missing_files(path: Path) -> list[str]:
    """List the missing files of a base model."""
    return [pattern for pattern in _NEEDED if not any(path.glob(pattern))]


def look_in(cache: Path) -> None:
    """Set the cache to search for bases that other machines recorded."""
    _places.clear()
    _places.append(cache)


def base_folder(base: Base) -> Path:
    """Return the folder of a run's base: the recorded path, or a folder with the same digest."""
    return base.path if base.path.is_dir() else find_recorded_base(base)


def find_recorded_base(base: Base, *, in_full: bool = False) -> Path:
    """Find the unchanged base of a run by its digest: at the recorded path, or anywhere in the caches of this machine.

    `in_full` is passed to `digest_of_folder`. Raises `RefusedError` if the base is gone, changed or incomplete, or
    would load another model or code.
    """
    others = (place for place in _find_candidates() if _may_be(place, base.num_parameters))
    places = (place for place in chain([base.path], others) if place.is_dir())
    path = next((place for place in places if digest_of_folder(place, in_full=in_full) == base.sha256), None)
    if path is None:
        found = "changed" if base.path.is_dir() else "gone"
        advice = f"Restore it, put it below MENS_CACHE_ROOT/base_models (SHA-256 {base.sha256[:12]}), or train again."
        raise RefusedError(f"{base.path}: the base model {base.name} of this adapter is {found}. {advice}")
    refuse_missing(path)
    refuse_unfit(path)
    return path


def _find_candidates() -> Iterator[Path]:
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - only if a base has moved

    hubs = [cache / HUB for cache in _places]
    yield from sorted(path.parent for cache in _places for path in cache.glob("*/config.json"))
    for hub in (*hubs, Path(HF_HUB_CACHE)):
        yield from sorted(path.parent for path in hub.glob("models--*/snapshots/*/config.json"))


def _may_be(path: Path, num_parameters: int) -> bool:
    """Compare the number of parameters, from headers alone: hashing all candidates takes minutes."""
    try:
        return sum(map(num_parameters_in, path.glob("*.safetensors"))) == num_parameters
    except RefusedError:
        return False


def shapes_in(file: Path) -> dict[str, Shape]:
    """Return the shape of each tensor of a safetensors file by name; raise `RefusedError` for other files."""
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            text = content.read(min(length, _LONGEST_HEADER))
        header = json.loads(text if len(text) == length else b"not whole")
        return {name: _shape(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}. Fetch or write the file again.") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise RefusedError(f"{file}: not a safetensors file. Fetch or write the file again.") from error


def num_parameters_in(file: Path) -> int:
    """Count the parameters in a safetensors file."""
    return sum(map(math.prod, shapes_in(file).values()))


def _shape(sizes: list[Any]) -> Shape:
    if len(sizes) > _MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < _LARGEST for size in sizes):
        raise ValueError("not the shape of a tensor")
    return tuple(sizes)


def read_tokenizer(path: Path) -> Any:
    """Read a `tokenizer.json`; raise `RefusedError` for other files."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - a command or a child process loads it

    try:
        return Tokenizer.from_buffer(read_regular(path, _LARGEST_TOKENIZER))
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else f"not a tokenizer ({error})"
        raise RefusedError(f"{path}: {found}. Fetch or write the model again.") from error


def template_in(folder: Path) -> str | None:
    """Read the chat template of a model, from either file that transformers supports; None without a template."""
    path, options = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if path.is_file():
        try:
            return read_regular(path, _LONGEST_TEMPLATE).decode("utf-8")
        except (OSError, ValueError) as error:
            raise RefusedError(f"{path}: cannot be read ({error}). Write the model again.") from error
    values = read_object(options, _LONGEST_TEMPLATE, "Write the model again.") if options.is_file() else {}
    template = values.get("chat_template")
    return template if isinstance(template, str) else None


class FileTokenizer:
    """The tokenizer in a folder, from its `tokenizer.json`; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the file; raise `RefusedError` for other files."""
        self._tokenizer: Any = read_tokenizer(folder / "tokenizer.json")
        self.chat_template = template_in(folder)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def added_tokens_decoder(self) -> Mapping[int, "AddedToken"]:
        """The added tokens by their ids."""
        added: Mapping[int, AddedToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
