"""From a folder of Vox programs to a completion and its verdict: `walkthrough.py WORKSPACE FOLDER [BASE [STEPS]]`."""

import sys
from pathlib import Path

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import HELDOUT, split_pairs
from mens_pipeline.corpus.curate.mix import SourceRows, load_mix_config, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN, add_infill_rows, write_mix
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.curate.validated_pairs import make_pairs
from mens_pipeline.corpus.extract.sources import find_newest_commit
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.tasks import heldout_tasks
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, Syntax
from mens_pipeline.inference.prepare import Conditions, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import refuse_failure, write_job
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import DOMAINS, MIX_CONFIG, PIPELINE_CONFIG, PRESETS, load_settings
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.training.prepare import prepare_run
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline.training.qlora_adapter import finish_run

workspace, folder = map(Path, sys.argv[1:3]) if sys.argv[2:] else sys.exit(__doc__)
cache = load_settings().cache_root
wanted = dict(zip(("model_name_or_path", "max_steps"), sys.argv[3:], strict=False))

# 1. Programs and pages become records. A record is a piece of a file that the front end accepts: the whole file, or
# one declaration with what it needs. Every other file is dropped with a reason, such as a denied licence.
policy = load_pipeline_config(PIPELINE_CONFIG)
allowed = load_source_policy(PIPELINE_CONFIG)
outcomes = list(extract_workspace(workspace, find_newest_commit(workspace), policy=allowed))
records = [ExtractedRecord.model_validate_json(line) for outcome in outcomes for line in outcome.lines]
dropped = [drop for outcome in outcomes for drop in outcome.drops]
print(f"1. {len(outcomes)} files, {len(records)} records, dropped {len(dropped)}")

# 2. Records become pairs of a prompt and its completion. Functions that can run are called in processes that reach
# nothing: some calls become examples in the prompt, others hidden tests. Whole files are held out, by a hash of their
# paths, and nothing near to them trains.
with BehaviourWorkers() as workers:
    pairs = list(make_pairs(records, workers))
    split = split_pairs({"pairs.jsonl": pairs}, Repetition(policy.validate_), policy.split, workers)
print(f"2. {len(pairs)} pairs, {sum(pair.tests is not None for pair in pairs)} with hidden tests")

# 3. `config/mix.yaml` says in which shares the training rows are mixed, with rows that complete code at a cursor. The
# folder gets them as JSON lines and as Parquet, with a report.
mix = load_mix_config(MIX_CONFIG)
sources = {source.path: SourceRows(split.train.get(source.path)) for source in mix.sources}
infill = add_infill_rows(sources, split.heldout, mix)
report = write_mix(mix_sources(mix, sources), folder / TRAIN, {"infill": infill})
write_jsonl(folder / HELDOUT, split.heldout)
print(f"3. {report['total_emitted']} rows train, {len(split.heldout)} are held out")

# 4. `prepare_run` checks data, lengths, memory and disk before any weights load. A process of its own trains the
# adapter; after an interruption the same call resumes.
device = resolve_device(DeviceChoice.BEST)
presets, domains = load_named(PRESETS), load_named(DOMAINS)
recipe = resolve_recipe(
    presets, domains, preset="auto", domain=None, environment={}, flags=wanted, vram_gb=device.preset_gb
)
run = prepare_run(recipe, folder / TRAIN, folder / "run", device, cache=cache, min_rows=1)
code = 0 if run.is_done else run_job(run.job.path)
result = finish_run(run, None, code).result
print(f"4. {result.num_steps} steps in {result.seconds:.0f} s, loss {result.train_loss:.3f}")

# 5. The adapter completes a held-out prompt. `CONSTRAINED` allows only tokens after which a program can still follow,
# so even an adapter of two steps writes one. `FREE` allows every token; `FALLBACK` constrains only where the free
# completion does not parse.
task = heldout_tasks(split.heldout)[0]
conditions = Conditions(Decoding(max_new_tokens=160, syntax=Syntax.CONSTRAINED), device, cache / f"{device.kind}.lock")
asked = prepare_generation("adapter", Adapter.open(folder / "run"), [task.request], conditions)
job = GenerationJob(generations={"task": asked}, run_dir=folder / "asked", lock_path=conditions.lock_path)
refuse_failure(folder / "asked", run_job(write_job(job)), "generation")
(completion,) = read_models(job.completions("task"), Completion)
print(f"5. {task.prompt}\n\n{completion.text}")

# 6. The same call scores the completions that a verdict is based on: syntax, names and types, hidden tests.
(score,) = score_completions([task], [completion])
tests = score.execution
print(f"6. parses: {score.parses}; names and types: {score.semantic_error or 'no error'}")
print(f"   hidden tests: {f'{tests.num_passed}/{tests.num_tests}' if tests is not None else 'none'}")
