"""Measure time and memory of extracting a workspace: cold, unchanged, and with one file edited."""

import resource
import sys
from argparse import ArgumentParser
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from time import perf_counter

from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, build_extracted_corpus
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, VOX_SUFFIXES, files_below
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.language.examples import golden_programs

_LINES = 1_000_000


def main() -> None:
    parser = ArgumentParser(description="Measure the extraction of workspaces.")
    parser.add_argument("source", nargs="?", type=Path, help="another workspace to measure, such as a checkout of Vox")
    parser.add_argument("--lines", type=int, default=_LINES, help="lines of the generated workspace")
    options = parser.parse_args()
    asked: Path | None = options.source
    workers = load_settings().num_workers
    print(f"{machine_name()}, {workers} workers")
    print()
    seconds = f"{'cold s':>9}{'CPU s':>9}{'unchanged s':>13}{'one edit s':>12}"
    print(f"{'workspace':<26}{'files':>8}{'lines':>11}{'records':>9}{seconds}")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _measure("seed data", PROJECT_ROOT / "data", folder / "seed", workers)
        if asked is not None:
            _measure(asked.name, asked, folder / "asked", workers)
        generated = folder / "generated"
        _generate(generated, options.lines)
        cold = _measure("generated", generated, folder / "million", workers)
        alone, _ = build_extracted_corpus(generated, ArtifactStore(folder / "alone"))
        same = digest_of(alone.path / RECORDS) == digest_of(cold.path / RECORDS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print()
    print(f"peak memory {peak:.0f} MB, of the largest worker {worker:.0f} MB")
    print(f"records with 1 and with {workers} workers: {'the same bytes' if same else 'DIFFERENT bytes'}")
    if not same:
        sys.exit("The corpus depends on the number of workers. Run make test.")


def _measure(name: str, source: Path, folder: Path, workers: int) -> Artifact:
    workspace = folder / "workspace"
    copytree(source, workspace, ignore=lambda _folder, names: [n for n in names if n in {"store", "dagster", "cache"}])
    files = [path for path in files_below(workspace, (*VOX_SUFFIXES, *PAGE_SUFFIXES)) if path.is_file()]
    num_lines = sum(path.read_bytes().count(b"\n") for path in files)
    store = ArtifactStore(folder / "store")
    before = _cpu_seconds()
    corpus, cold = _time(workspace, store, workers)
    cpu = _cpu_seconds() - before
    _, unchanged = _time(workspace, store, workers)
    edited = next(path for path in files if path.name.endswith(".vox"))
    text = edited.read_bytes()
    edited.write_bytes(text + b"\nfn added_by_the_bench() to int {\n    return 1\n}\n")
    _, one_edit = _time(workspace, store, workers)
    edited.write_bytes(text)
    figures = f"{len(files):>8,}{num_lines:>11,}{corpus.manifest['num_records']:>9,}"
    print(f"{name:<26}{figures}{cold:>9.2f}{cpu:>9.2f}{unchanged:>13.2f}{one_edit:>12.2f}")
    return corpus


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _time(workspace: Path, store: ArtifactStore, workers: int) -> tuple[Artifact, float]:
    started = perf_counter()
    corpus, _ = build_extracted_corpus(workspace, store, Pool(workers))
    return corpus, perf_counter() - started


def _generate(folder: Path, num_lines: int) -> None:
    written = number = 0
    programs = list(golden_programs().items())
    while written < num_lines:
        name, source = programs[number % len(programs)]
        path = folder / f"part{number // 1000}" / f"{number}_{Path(name).name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"// Program {number}.\n\n{source}"
        path.write_text(text, encoding="utf-8")
        written += text.count("\n")
        number += 1


if __name__ == "__main__":
    main()
