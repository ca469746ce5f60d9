"""One file for a GPU machine without a network: this commit, the packages it lacks, a tokenizer, and rows.

`make gpu-bundle` writes `build/gpu-bundle.tar`, at most 64 MiB. That machine has a Python with a torch for its GPU,
transformers, accelerate, pandas, pyarrow, SciPy and Jinja2, of any version; there:

    tar xf gpu-bundle.tar && make gpu-check     # without make: python3 -m mens_pipeline_tests.gpu.check
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.settings import PROJECT_ROOT, load_settings, open_store
from mens_pipeline.storage.kinds import Kind
from mens_pipeline_tests.bench.random_base import tokenizer_files
from mens_pipeline_tests.gpu.check import BUNDLE, KERNELS, TOKENIZER, WHEELS

_MOST_BYTES: Final = 64 * 2**20
_PACKAGES: Final = (
    *("transformers", "huggingface_hub", "tokenizers", "trl", "peft", "bitsandbytes", "datasets", "dill"),
    *("multiprocess", "httpx2", "httpcore2", "truststore", "sniffio", "pydantic", "pydantic_core", "pydantic-settings"),
    *("python-dotenv", "typing-inspection", "typing_extensions", "annotated-types", "platformdirs", "dagster-pipes"),
    *("dagster-shared", "tomlkit", "fastapi", "starlette", "annotated-doc", "uvicorn", "prometheus_client", "typer"),
    *("opentelemetry-api", "SQLAlchemy", "mdit-py-plugins", "markdown-it-py", "mdurl"),
    *("pytest", "einops", *KERNELS),
)
"""Names in constraints.txt, which has their versions. Packages that depend on torch are left out."""
_NEEDED: Final = ("xxhash", "iniconfig", "pluggy", "pytest-timeout")
"""Required by these packages or pyproject.toml, and not among the packages of the machine."""
_PLATFORMS: Final = ("manylinux_2_28_{0}", "manylinux_2_24_{0}", "manylinux_2_17_{0}", "manylinux2014_{0}", "any")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, help="a train set [default: the newest one of the store]")
    parser.add_argument("--heldout", type=Path, help="held-out pairs [default: likewise]")
    parser.add_argument("--python", default="3.12", help="Python of the GPU machine")
    parser.add_argument("--architecture", default="x86_64", choices=["x86_64", "aarch64"])
    parser.add_argument(
        "--cuda", default="130", help="CUDA of its torch, without the point: bitsandbytes has a library each"
    )
    options = parser.parse_args()
    shutil.rmtree(BUNDLE, ignore_errors=True)
    (BUNDLE / TOKENIZER).mkdir(parents=True)
    shutil.copy2(options.train or _newest(Kind.MIXED_TRAIN_SET, TRAIN), BUNDLE / TRAIN)
    shutil.copy2(options.heldout or _newest(Kind.HELDOUT_SPLIT, HELDOUT), BUNDLE / HELDOUT)
    for file in tokenizer_files():
        shutil.copy2(file, BUNDLE / TOKENIZER / file.name)
    _download(options.python, options.architecture)
    for wheel in (BUNDLE / WHEELS).glob("bitsandbytes-*.whl"):
        keep_libraries(wheel, (f"_cuda{options.cuda}.so", "_cpu.so"))
    print(pack(BUNDLE.with_suffix(".tar")))


def _newest(kind: str, name: str) -> Path:
    store = open_store(load_settings())
    key = store.read_pointer(kind, "latest")
    artifact = store.get(kind, key) if key else None
    if artifact is None:
        sys.exit(f"{store.root}: no {name}. Run: mens run --no-train, or name a file.")
    return artifact.path / name


def pins() -> list[str]:
    """Return the bundled packages as requirements, in the versions of constraints.txt."""
    lines = (PROJECT_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    known = dict(line.split("==") for line in lines if "==" in line)
    return [f"{name}=={known[name]}" for name in (*_PACKAGES, *_NEEDED)]


def _download(python: str, architecture: str) -> None:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name.format(architecture))]
    target = ["--python-version", python, "--implementation", "cp", *platforms, "--dest", str(BUNDLE / WHEELS)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *target, *pins()]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"The packages for Python {python} on {architecture} were not found; pip says above what is missing.")


def keep_libraries(wheel: Path, endings: tuple[str, ...]) -> None:
    """Rewrite a wheel, with only those of its shared libraries whose names end so."""
    smaller = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as kept:
        names = [name for name in whole.namelist() if not name.endswith(".so") or name.endswith(endings)]
        if missing := [ending for ending in endings if not any(name.endswith(ending) for name in names)]:
            sys.exit(f"{wheel.name}: no library {missing[0]}. Name a CUDA that it has, such as --cuda 128.")
        for name in names:
            kept.writestr(name, whole.read(name))
    smaller.replace(wheel)


def pack(target: Path) -> str:
    """Pack the commit with the bundle, and describe the file.

    Files outside the commit are left out, because the report names a commit; so is the adapter of the demonstration.
    """
    archive = ["git", "archive", "--format=tar", f"--output={target}", "HEAD", ".", ":(exclude)data/demo"]
    subprocess.run(archive, cwd=PROJECT_ROOT, check=True)
    with tarfile.open(target, "a") as tar:
        tar.add(BUNDLE, BUNDLE.relative_to(PROJECT_ROOT))
    size = target.stat().st_size
    if size > _MOST_BYTES:
        sys.exit(f"{target}: {size / 2**20:.1f} MiB, more than {_MOST_BYTES / 2**20:.0f}. Name smaller sets of rows.")
    return f"{target}: {size / 2**20:.1f} MiB, {len(list((BUNDLE / WHEELS).iterdir()))} packages"


if __name__ == "__main__":
    main()
