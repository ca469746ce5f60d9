"""All rows that may train; held-out tasks must not be near them."""

from collections.abc import Iterable
from pathlib import Path

from mens_pipeline.corpus.curate.heldout_split import HeldoutTasks
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import STAGE as VALIDATION
from mens_pipeline.corpus.curate.validated_pairs import ValidationParams
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, build_extracted_corpus
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs, read_records
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS, STAGE, SynthesisParams, count_constructs, generate
from mens_pipeline.evaluation.benchmark import Benchmark, tasks_as_pairs
from mens_pipeline.settings import PIPELINE_CONFIG, PROJECT_ROOT
from mens_pipeline.storage.jsonl import open_rows
from mens_pipeline.storage.store import ArtifactStore


def rows_that_may_train(root: Path) -> list[TrainingPair]:
    """Every pair of the seed data, held out or not, synthetic pairs of the pipeline, and those of two other seeds.

    Artifacts that are already in the store are reused.
    """
    config = load_pipeline_config(PIPELINE_CONFIG)
    store = ArtifactStore(root)
    corpus, _ = build_extracted_corpus(PROJECT_ROOT / "data", store)
    synthetic, _ = STAGE.build(store, SynthesisParams(corpus=corpus, policy=config.synthesize))
    params = ValidationParams(corpus=corpus, others={PAIRS: synthetic.path / PAIRS}, policy=config.validate_)
    pairs, _ = VALIDATION.build(store, params)
    rows = [row for name in pairs.manifest["num_pairs"] for row in read_pairs(pairs.path / name)]
    with open_rows(corpus.path / RECORDS) as lines:
        records = list(read_records(lines, corpus.path / RECORDS))
    coverage = count_constructs(record.constructs for record in records)
    return rows + [
        row for seed in (1, 2) for row in generate(850, seed, config.synthesize.shares.model_dump(), coverage)
    ]


def near_to(benchmark: Benchmark, rows: Iterable[TrainingPair], max_overlap: float) -> set[tuple[str, str, str]]:
    """The rows that repeat a task, each as the task, the kind of overlap, and the start of its prompt.

    `max_overlap` is the share of a solution's word n-grams that a row may have. It is less than the pipeline allows,
    or every row that passed the pipeline would pass here too.
    """
    split = load_pipeline_config(PIPELINE_CONFIG).split
    assert max_overlap < split.max_overlap
    tasks = HeldoutTasks(tasks_as_pairs(benchmark), max_overlap, split.min_nodes)
    return {(overlap[1], overlap[0], row.prompt[:80]) for row in rows if (overlap := tasks.overlap(row)) is not None}
