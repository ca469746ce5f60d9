"""Find a base model: in a folder, the caches of this machine, the Hub, or wheels of the package index."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.models.base import HUB, RECORD, Base, describe_base, missing_files, refuse_unfit
from mens_pipeline.models.base_wheels import QWEN_CODER, SMOLLM2, WHEEL_BASES, convert_wheels
from mens_pipeline.storage.documents import hold_lock

DEFAULT_CUDA_MODEL: Final = "Qwen/Qwen3.5-4B"
DEFAULT_CPU_MODEL: Final = SMOLLM2
"""The default bases of a recipe, with a GPU and without one."""

_LONGEST_WORDS: Final = 200
"""Characters of a library's error to quote in a message."""

_ALLOWED: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "merges.txt", "vocab.txt", "LICENSE*", "README.md")


_KNOWN: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    SMOLLM2: (30, 9, 576, 49_152, 134_515_008),
    DEFAULT_CUDA_MODEL: (32, 16, 2560, 248_320, 4_205_000_000),
    QWEN_CODER: (24, 14, 896, 151_936, 494_032_768),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": (28, 12, 1536, 151_936, 1_543_714_304),
}
"""Base -> layers, heads, width, vocabulary, parameters, for estimates when it is not on this machine."""


def find_base_model(
    name: str, revision: str | None, cache: Path, log_line: Callable[[str], None] = lambda _line: None
) -> Base:
    """Find a base model; raise a `RefusedError` that lists all attempts if there is none."""
    folder = Path(name)
    if folder.is_dir():
        return describe_base(name, None, folder, "folder", _read_licence(folder))
    target, downloads = cache / name.replace("/", "--"), cache / "downloads"
    is_in_wheels = name in WHEEL_BASES and revision in {None, WHEEL_BASES[name].revision}
    if is_in_wheels and (target / RECORD).is_file():
        return _read_record(target)
    tried: list[str] = []
    found = _of_hub(name, revision, cache, tried, log_line)
    if found is not None:
        return found
    if is_in_wheels:
        try:
            downloads.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "Set MENS_CACHE_ROOT to a writable folder."
            raise ConfigurationError(f"{downloads}: {error.strerror}. {advice}") from error
        with hold_lock(downloads / ".lock"):  # processes that start together convert it once
            is_there = (target / RECORD).is_file()
            return _read_record(target) if is_there else convert_wheels(name, target, downloads, tried, log_line)
    advice = "Name a folder with the model, or download it where the Hub can be reached."
    raise RefusedError(f"base model {name}: {'; '.join(dict.fromkeys(tried))}. {advice}")


def base_by_name(name: str) -> Base:
    """Describe a base by its published sizes, without its files; raise `RefusedError` for an unknown base."""
    if name not in _KNOWN:
        advice = "Fetch it first with `mens train --dry-run --model NAME`."
        raise RefusedError(f"base model {name}: not on this machine, and its sizes are unknown. {advice}")
    layers, heads, width, vocabulary, parameters = _KNOWN[name]
    return Base(
        name=name,
        revision=None,
        path=Path(name),
        origin="hub",
        sha256="0" * 64,
        licence=None,
        architecture="unknown",
        num_layers=layers,
        num_heads=heads,
        hidden_size=width,
        vocab_size=vocabulary,
        num_parameters=parameters,
    )


def is_base_here(name: str, cache: Path) -> bool:
    """Check whether a base is on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - only commands load it

    if Path(name).is_dir() or (cache / name.replace("/", "--") / RECORD).is_file():
        return True
    hubs = (cache / HUB, Path(HF_HUB_CACHE))
    return any(any(hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/*.safetensors")) for hub in hubs)


def _read_record(path: Path) -> Base:
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
        return Base(**{**record, "path": path})
    except (ValueError, TypeError) as error:
        raise RefusedError(f"{path / RECORD}: cannot be read ({error}). Delete {path}, and run again.") from error


def _of_hub(
    name: str, revision: str | None, cache: Path, tried: list[str], log_line: Callable[[str], None]
) -> Base | None:
    """Find a model in a local cache of the Hub, or else on the Hub; never fetch its code."""
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - only a command or a child process loads it
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415 - likewise

    fetched = partial(snapshot_download, name, revision=revision)
    # Read the user's own cache, and download into ours.
    places = (("cache", None, True), ("cache", cache / HUB, True), ("hub", cache / HUB, False))
    for origin, folder, is_local in places:
        try:
            if not is_local:
                log_line(f"asking the Hub for {name}")
                # Check the small configuration before downloading the weights.
                first = Path(fetched(cache_dir=folder, allow_patterns=["config.json"]))
                if (first / "config.json").is_file():
                    refuse_unfit(first)
            path = Path(fetched(cache_dir=folder, allow_patterns=list(_ALLOWED), local_files_only=is_local))
            missing = missing_files(path)
            if not missing:
                return describe_base(name, revision or path.name, path, origin, _read_licence(path))
            tried.append(f"{origin}: no {', no '.join(missing)} in {path}")
        except LocalEntryNotFoundError as error:
            # For a cache, the message of the library adds nothing.
            tried.append(f"{origin}: not found" if is_local else f"{origin}: {_describe_failure(error)}")
        except (HfHubHTTPError, HFValidationError) as error:
            tried.append(f"{origin}: {_first_line(error)}")
        except (HTTPError, ConnectionError, TimeoutError) as error:
            tried.append(f"{origin}: {_describe_failure(error)}")
        except OSError as error:
            tried.append(f"{origin}: {_first_line(error)}")
    return None


def _describe_failure(error: BaseException) -> str:
    """Describe a failed connection by its innermost error, on one line."""
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return f"cannot be reached ({' '.join(str(innermost).split())[:_LONGEST_WORDS] or type(innermost).__name__})"


def _first_line(error: Exception) -> str:
    words = str(error).strip().splitlines()
    return type(error).__name__ + (f" ({words[0][:_LONGEST_WORDS]})" if words else "")


def _read_licence(path: Path) -> str | None:
    card = path / "README.md"
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines() if card.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("license:")), None)
