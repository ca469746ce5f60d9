"""Compare models on held-out holes: an adapter, the same adapter left to right, its base, and an n-gram.

`python -m mens_pipeline_tests.bench.infill RUN --data DIR [--holes 500] [--lines 120]`

DIR holds `heldout.jsonl` and `train.jsonl`, as `mens corpus mix` writes them. Models without a suffix fill `--lines` of
the line holes. The printed seconds of each suite are those of an evaluation.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mens_pipeline.evaluation.infill import INFILL, LINE_MODELS, find_holes, infill_decoding, score_holes
from mens_pipeline.evaluation.results import InsertScore
from mens_pipeline.inference.generation import Completion, Decoding, EvaluationConfig, GenerationJob, Syntax
from mens_pipeline.inference.prepare import Conditions, completion_fits, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.bench.machine import machine_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of `mens train`")
    parser.add_argument("--data", type=Path, default=Path("build"))
    parser.add_argument("--holes", type=int, default=500)
    parser.add_argument("--lines", type=int, default=120, help="number of line holes for models without a suffix")
    parser.add_argument("--examples", type=int, default=0, help="number of the adapter's pieces to print")
    options = parser.parse_args()
    adapter = Adapter.open(options.run)
    config = EvaluationConfig(infill_holes=options.holes, infill_lines=options.lines)
    fits = completion_fits(adapter.manifest.base_model, infill_decoding(config))
    begin = time.monotonic()
    train = options.data / "train.jsonl"
    suite = find_holes(options.data / "heldout.jsonl", train, adapter.manifest, config, fits)
    if suite is None:
        parser.error(f"{options.run} was never shown a hole, or there is none to ask for")
    print(machine_name(), f"{len(suite.tasks)} holes, {len(suite.lines)} lines, window {suite.window}", sep=", ")
    print(f"holes and n-gram: {time.monotonic() - begin:.0f} s")
    completions: dict[str, Sequence[Completion]] = {}
    names = {
        INFILL: "adapter",
        **{name: "adapter" if model != "base" else "base" for model, name in LINE_MODELS.items()},
    }
    for name, model in names.items():
        begin, is_line = time.monotonic(), name != INFILL
        some = suite.lines if is_line else suite.tasks
        requests = [task.request(suite.window, is_prefix_alone=is_line) for task in some]
        syntax = Syntax.FREE if is_line else Syntax.FALLBACK
        completions[name] = complete_requests(
            model, adapter, requests, suite.decoding.model_copy(update={"syntax": syntax})
        )
        num_again = sum(each.constrained for each in completions[name])
        print(f"{name}: {time.monotonic() - begin:.0f} s, {num_again} written once more")
    begin = time.monotonic()
    results, scores = score_holes(suite, completions, None)
    print(f"scoring: {time.monotonic() - begin:.0f} s; served {results.shown}")
    for model, kinds in results.models.items():
        for kind, rates in kinds.items():
            print(
                f"{model:<14}{kind:<12}{rates.exact!s:<66} kept {rates.kept:.2f} similar {rates.similarity:.2f} "
                f"parses {rates.parses.short} resolves {rates.resolves.short} tests {rates.tests.short} "
                f"ended {rates.stopped.short}"
            )
    inside = [score for score in scores if score.model == "adapter" and _is_inside_word(score)]
    kept = sum(score.kept for score in inside) / max(1, len(inside))
    print(f"adapter, inside a word: exact {sum(score.exact for score in inside)}/{len(inside)}, kept {kept:.2f}")
    for model, paired in results.exact_difference.items():
        print(f"adapter over {model}: {paired.only_second} more, {paired.only_first} fewer, p {paired.p_better:.4f}")
    print(results.abstention)
    for score in [score for score in scores if score.model == "adapter"][: options.examples]:
        mark = "=" if score.exact else "!"
        print(f"{score.kind} {mark} {score.before[-40:]!r} | {score.piece!r} | {score.reference!r}")


def _is_inside_word(score: InsertScore) -> bool:
    return all(re.match(r"\w", side) for side in (score.before[-1:], score.reference))


def complete_requests(model: str, adapter: Adapter, requests: Sequence[Any], decoding: Decoding) -> list[Completion]:
    from mens_pipeline.inference.generate import generate  # noqa: PLC0415 - loads torch

    with tempfile.TemporaryDirectory(prefix="mens-bench-") as folder:
        conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), Path(folder) / "lock")
        asked = prepare_generation("base" if model == "base" else "adapter", adapter, requests, conditions)
        job = GenerationJob(generations={"asked": asked}, run_dir=Path(folder), lock_path=conditions.lock_path)
        generate(job)
        return list(read_models(job.completions("asked"), Completion))


if __name__ == "__main__":
    main()
