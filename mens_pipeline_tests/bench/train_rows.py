"""Measure the start of a training on many rows: encode, find the encoded rows, plan, read the first micro-batches.

`python -m mens_pipeline_tests.bench.train_rows TRAIN.jsonl` prints the padding and the steps of each preset, with the
tokenizer of Qwen2.5-Coder.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from shutil import copyfile
from typing import Any, Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.jobs.agent import Team
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.protocol import JOB
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.base_wheels import QWEN_CODER
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.models.infill import SUFFIX_FIRST, choose_order
from mens_pipeline.settings import PRESETS, load_settings
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.examples import make_examples, open_examples, plan_examples
from mens_pipeline.training.plan import Share, plan_run, step_tokens
from mens_pipeline.training.prepare import prepare_run
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.recipe import Recipe, TrainingJob
from mens_pipeline.training.step_plan import Schedule, take_up
from mens_pipeline.training.train_rows import FOLDER, SHARD_BYTES, Encoding, Shards, encode_train_set
from mens_pipeline_tests.bench.sizes import PEAK, Measured, in_own_process, measure_time, memory_mb
from mens_pipeline_tests.training.runs import resolve_fast
from mens_pipeline_tests.training.small_folder import write_folder

_FIELDS: Final[dict[str, Any]] = {
    "max_length": 1024,
    "per_device_train_batch_size": 64,
    "max_tokens_per_batch": 8192,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 3,
    "token_shares": {"task": 0.45, "template": 0.1},
    "category_alpha": 0.6,
    "validation_split_ratio": 0.05,
}
"""Fields that mix and batch rows as the presets do."""

_BATCHES: Final = 200
_WINDOW: Final = Recipe().infill_window
_KINDS: Final = ("vox_codegen", "vox_codegen", "task", "template")
_CATEGORIES: Final = ("function", "function", "table", "actor", "test")


def rows_of(folder: Path, size: int) -> Measured:
    """Measure the start on a train set of generated rows of 160 tokens each, before and after they are encoded.

    Only one shard is generated and encoded; further rows repeat its rows, and further shards are copies of it.
    """
    found: Measured = {}
    train_path, cache = folder / "train.jsonl", folder / "cache"
    block = list(_block())
    with train_path.open("wb") as target:
        for _ in range(size // len(block)):
            target.writelines(block)
        target.writelines(block[: size % len(block)])
    found["train set, MB"] = train_path.stat().st_size / 1e6
    encoding = Encoding(train_path, write_folder(folder / "base"), SYSTEM_PROMPT, _WINDOW, SUFFIX_FIRST)
    first = in_own_process(_encode, folder, encoding, size // len(block))
    found["encode: microseconds a row"] = 1e6 * first["seconds"] / min(size, len(block))
    found["encode: peak memory of a process, MB"] = first[PEAK]
    found["encoded rows, MB"] = sum(path.stat().st_size for path in cache.rglob("*.arrow")) / 1e6
    for name, part in (("prepare", _prepare), ("training", _first_batches)):
        found |= {f"{name}: {what}": value for what, value in in_own_process(part, folder, encoding.base_path).items()}
    return found


def _block() -> Iterator[bytes]:
    random, left = Random(0), SHARD_BYTES  # noqa: S311 - reproducible rows, no secret
    for number in range(SHARD_BYTES):
        line = build_line(number, random)
        if left < 3 * len(line):
            yield line.replace(
                b"Write", b"Write" + b" it" * ((left - len(line)) // 3) + b"!" * ((left - len(line)) % 3)
            )
            return
        left -= len(line)
        yield line


def build_line(number: int, random: Random, kind: SourceKind = SourceKind.VOX_FILE) -> bytes:
    """Return a row of about 500 bytes with a program of three to eleven lines; every number gives a different row."""
    body = "".join(f"    let v{n} = n * {random.randrange(99)}\n" for n in range(random.randrange(1, 9)))
    place = Source(path=f"src/{number // 5}.vox", blob="0", span=(0, 1), lines=(1, 1), kind=kind)
    pair = TrainingPair(
        prompt=f"Write a function f{number} that returns the {random.choice(('first', 'last'))} of some numbers.",
        response=f"fn f{number}(n: int) to int {{\n{body}    return n\n}}\n",
        category=random.choice(_CATEGORIES),
        task_family=random.choice(_KINDS),
        difficulty=random.randint(1, 10),
        source=place,
    )
    return pair.model_dump_json().encode() + b"\n"


def _encode(folder: Path, encoding: Encoding, num_blocks: int) -> Measured:
    found: Measured = {}
    digest, cache = digest_of(encoding.train_path), folder / "cache"
    first, *others = encoding.paths(cache / FOLDER / encoding.key(digest))
    head = folder / "head.jsonl"
    with encoding.train_path.open("rb") as content:
        head.write_bytes(content.read(SHARD_BYTES))
    alone = replace(encoding, train_path=head)
    with measure_time(found, "seconds"):
        made = encode_train_set(alone, digest_of(head), cache)
    if made != first.parent:
        made.rename(first.parent)
    for path in others[: max(0, num_blocks - 1)]:
        for ending in ("", ".sha256"):
            copyfile(f"{first}{ending}", f"{path}{ending}")
    encode_train_set(encoding, digest, cache, workers=1)
    return found


def _prepare(folder: Path, base: Path) -> Measured:
    found: Measured = {}
    lines: list[str] = []
    with measure_time(found, "CPU seconds"):
        prepare_run(
            resolve_fast(base, **_FIELDS),
            folder / "train.jsonl",
            folder / "run",
            resolve_device(DeviceChoice.CPU),
            cache=folder / "cache",
            min_rows=1,
            log_line=lines.append,
        )
    assert not any("shard" in line for line in lines), lines
    return {**found, "its own memory at the end, MB": memory_mb("RssAnon")}


def _first_batches(folder: Path, _base: Path) -> Measured:
    found: Measured = {}
    job = TrainingJob.model_validate_json((folder / "run" / JOB).read_bytes())
    with measure_time(found, "CPU seconds"):
        examples = open_examples(job)
        plan = plan_examples(job.rows_path, examples.columns, job.recipe)
        tokens = step_tokens(plan.batches, examples.columns.lengths, job.recipe.accumulation)
        take_up(folder, Schedule(plan.num_steps, 0, "linear"), tokens, 60.0)
    with measure_time(found, "milliseconds to read a micro-batch"):
        batches = Share(plan.batches, job.recipe.accumulation, Team(), ())
        shown = [[len(examples.train[row]) for row in batch] for batch in islice(batches, _BATCHES)]
    assert [max(lengths) * len(lengths) for lengths in shown] == tokens[: len(shown)].tolist()
    found["milliseconds to read a micro-batch"] *= 1000 / len(shown)
    return {**found, "its own memory at the end, MB": memory_mb("RssAnon")}


def main() -> None:
    train_path, cache = Path(sys.argv[1]), load_settings().cache_root
    base = find_base_model(QWEN_CODER, None, cache / "base_models", print)
    encoding = Encoding(train_path, base.path, SYSTEM_PROMPT, _WINDOW, choose_order(FileTokenizer(base.path)))
    folder = encode_train_set(encoding, digest_of(train_path), cache, print)
    print(f"{'preset':<20}{'padding':>9}{'steps':>7}{'tokens a step':>15}")
    for name, preset in load_named(PRESETS).items():
        recipe = Recipe.model_validate(preset.values)
        columns = make_examples(Shards(encoding.paths(folder)), recipe).columns
        plan = plan_run(columns, recipe)
        padded = int(plan.batches.padded_tokens(columns.lengths).sum())
        shown = int(columns.lengths[plan.batches.all_rows].sum(dtype=int))
        print(f"{name:<20}{1 - shown / padded:>9.1%}{plan.num_steps:>7}{shown / plan.num_steps:>15,.0f}")


if __name__ == "__main__":
    main()
