"""Add to a train set the completions of an adapter that pass the tests of their prompt.

`python -m mens_pipeline_tests.bench.own_samples RUN TRAIN OUT [--prompts 160] [--part 0 --parts 2]`

Each prompt is a random row with tests and gets one completion at a temperature of 0.7, unconstrained. Completions equal
to the reference are left out. `--part` of `--parts` writes the new rows alone.
"""

import argparse
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.behaviour.observe import passes
from mens_pipeline.inference.generate import generate
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, Request
from mens_pipeline.inference.prepare import Conditions, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.language import analyze
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.jsonl import read_models

_LONGEST = 400  # characters of a reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=int, default=160)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args()
    random.seed(0)
    rows: list[dict[str, Any]] = [json.loads(line) for line in options.train.read_text(encoding="utf-8").splitlines()]
    tested = [
        row
        for row in rows
        if row.get("tests") and row["task_family"] in {"task", "vox_codegen"} and len(row["response"]) <= _LONGEST
    ]
    chosen = random.sample(tested, options.prompts)[options.part :: options.parts]
    requests = [Request(task=str(number), prompt=row["prompt"]) for number, row in enumerate(chosen)]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mens-bench-") as folder:
        decoding = Decoding(max_new_tokens=160, temperature=0.7)
        conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), Path(folder) / "lock")
        asked = prepare_generation("adapter", Adapter.open(options.run), requests, conditions)
        job = GenerationJob(generations={"asked": asked}, run_dir=Path(folder), lock_path=conditions.lock_path)
        generate(job)
        completions = tuple(read_models(job.completions("asked"), Completion))
    new = []
    for each in completions:
        row = chosen[int(each.task)]
        if not analyze(each.text).ok:
            found["does not parse"] += 1
        elif not passes(each.text, row["tests"]):
            found["fails"] += 1
        elif "".join(each.text.split()) == "".join(row["response"].split()):
            found["the reference"] += 1
        else:
            found["another way"] += 1
            new.append(row | {"response": each.text.strip() + "\n", "rating": 4})
    with options.out.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(each) + "\n" for each in ([] if options.parts > 1 else rows) + new)
    print(found.most_common())


if __name__ == "__main__":
    main()
