"""How often the corpus stages parse a program, in all of their processes.

`python -m mens_pipeline_tests.bench.parses [WORKSPACE] [--workers 2]` makes the train set of a workspace as `mens run`
does. A program that one process parses twice was forgotten meanwhile; one that two processes parse was not handed over.
Every process writes a line for each parse into a file, so the behaviour workers are not confined here.
"""

import hashlib
import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final
from unittest.mock import patch

from mens_pipeline.corpus.behaviour import workers as behaviour
from mens_pipeline.corpus.curate.heldout_split import OVERLAP_STAGE, OverlapParams, SplitParams
from mens_pipeline.corpus.curate.heldout_split import STAGE as SPLIT
from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.corpus.curate.mixed_train_set import STAGE as MIX
from mens_pipeline.corpus.curate.mixed_train_set import MixParams
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import STAGE as VALIDATION
from mens_pipeline.corpus.curate.validated_pairs import ValidationParams
from mens_pipeline.corpus.extract.extracted_corpus import (
    SNAPSHOT_STAGE,
    TELEMETRY,
    SnapshotParams,
    build_extracted_corpus,
)
from mens_pipeline.corpus.extract.sources import vox_files
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS, SynthesisParams
from mens_pipeline.corpus.synthesis.synthetic_corpus import STAGE as SYNTHESIS
from mens_pipeline.evaluation.benchmark import protected_pairs
from mens_pipeline.language import Analysis, Mode, front_end
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, PROJECT_ROOT, load_settings
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.bench.machine import machine_name

_LOGS: Final = "MENS_BENCH_PARSES"
"""The variable that names the folder into which the processes of a stage write."""

_COUNTING_WORKER: Final = "from mens_pipeline_tests.bench.parses import serve; serve({folder!r})"


def count_parses(folder: Path) -> None:
    """Write the hash of each text that this process parses from now on, one a line, into a file of its own."""
    parse = front_end.analyze_uncached
    log = (folder / str(os.getpid())).open("ab", buffering=0)

    def parse_and_count(source: str, mode: Mode = Mode.SOURCE) -> Analysis:
        log.write(hashlib.sha256(f"{mode}\0{source}".encode()).hexdigest().encode() + b"\n")
        return parse(source, mode)

    front_end.analyze_uncached = parse_and_count


def serve(folder: str) -> None:
    """Observe and try functions as a behaviour worker does, and count the parses of what is asked for."""

    def begin(_memory_bytes: int) -> dict[str, str]:
        count_parses(Path(folder))
        return {}

    behaviour.main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer, begin)


def main() -> None:
    """Make the train set stage by stage, and print what each parsed."""
    parser = ArgumentParser(description="Count the parses of the corpus stages.")
    parser.add_argument("source", nargs="?", type=Path, default=PROJECT_ROOT / "data", help="the workspace")
    parser.add_argument("--workers", type=int, default=load_settings().num_workers, help="processes of a stage")
    options = parser.parse_args()
    print(f"{machine_name()}, {options.workers} workers\n")
    print(f"{'stage':<20}{'seconds':>9}{'parses':>9}{'of workers':>12}{'again':>9}{'programs':>10}")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        logs = folder / "logs"
        logs.mkdir()
        sys.argv.append(str(logs))  # which the processes of a stage get as well
        count_parses(logs)
        command = (sys.executable, "-B", "-P", "-s", "-c", _COUNTING_WORKER.format(folder=str(logs)))
        whole, num_again = Counter[str](), 0
        with patch.dict(behaviour.BehaviourWorkers.__init__.__kwdefaults__, {"command": command}):
            for name, make in _stages(folder, options.source, options.workers):
                started = perf_counter()
                make()
                seconds = perf_counter() - started
                parses = {path.name: Counter(path.read_text().split()) for path in logs.iterdir()}
                for path in logs.iterdir():
                    os.truncate(path, 0)
                own = parses[str(os.getpid())]
                stage = sum(parses.values(), Counter[str]())
                again = sum(one.total() - len(one) for one in parses.values())
                num_workers = stage.total() - own.total()
                print(f"{name:<20}{seconds:>9.1f}{stage.total():>9,}{num_workers:>12,}{again:>9,}{len(stage):>10,}")
                whole, num_again = whole + stage, num_again + again
    print(f"{'all':<20}{'':>9}{whole.total():>9,}{'':>12}{num_again:>9,}{len(whole):>10,}")
    print(f"\n{whole.total() / len(whole):.2f} parses a program; again: by the same process in the same stage")


def _stages(folder: Path, root: Path, workers: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the stages by name, each as what makes it; the next one needs what it made."""
    store, config = ArtifactStore(folder / "store"), load_pipeline_config(PIPELINE_CONFIG)
    protected = protected_pairs(load_settings().benchmark_dir)
    programs = [(path.relative_to(root).as_posix(), path.read_bytes()) for path in vox_files(root)]
    yield SNAPSHOT_STAGE.kind, lambda: SNAPSHOT_STAGE.build(store, SnapshotParams.of(root, contents=lambda: programs))
    yield "extracted_corpus", lambda: build_extracted_corpus(root, store, workers)
    corpus, _ = build_extracted_corpus(root, store, workers)
    synthesis = SynthesisParams(corpus=corpus, policy=config.synthesize, workers=workers)
    yield SYNTHESIS.kind, lambda: SYNTHESIS.build(store, synthesis)
    others = {PAIRS: SYNTHESIS.build(store, synthesis)[0].path / PAIRS, TELEMETRY: corpus.path / TELEMETRY}
    validation = ValidationParams(corpus=corpus, others=others, policy=config.validate_)
    yield VALIDATION.kind, lambda: VALIDATION.build(store, validation)
    pairs, _ = VALIDATION.build(store, validation)
    splitting = SplitParams(pairs=pairs, repeats=config.validate_, policy=config.split, protected=protected)
    yield SPLIT.kind, lambda: SPLIT.build(store, splitting)
    split, _ = SPLIT.build(store, splitting)
    overlap = OverlapParams(split=split, policy=config.split, protected=protected)
    yield OVERLAP_STAGE.kind, lambda: OVERLAP_STAGE.build(store, overlap)
    yield MIX.kind, lambda: MIX.build(store, MixParams(split=split, config=load_mix_config(MIX_CONFIG)))


if __name__ == "__mp_main__":  # a process that a stage started
    count_parses(Path(sys.argv[-1]))
elif __name__ == "__main__":
    main()
