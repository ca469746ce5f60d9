"""Kinds of artifacts, and the names of the files in each."""

from enum import StrEnum
from typing import Final, NewType


class Kind(StrEnum):
    """A kind of artifact; its value names the folder of the store that holds the artifacts."""

    WORKSPACE_SNAPSHOT = "workspace_snapshot"
    EXTRACTED_CORPUS = "extracted_corpus"
    SYNTHETIC_CORPUS = "synthetic_corpus"
    VALIDATED_PAIRS = "validated_pairs"
    HELDOUT_SPLIT = "heldout_split"
    HELDOUT_OVERLAP = "heldout_overlap"
    MIXED_TRAIN_SET = "mixed_train_set"
    RUN_PLAN = "run_plan"
    QLORA_ADAPTER = "qlora_adapter"
    SCRATCH_MODEL = "scratch_model"
    GENERATIONS = "generations"
    EVAL_RESULTS = "eval_results"
    HISTORY_REPLAY = "history_replay"
    BENCHMARK_GATE = "benchmark_gate"
    PROMOTED_ADAPTER = "promoted_adapter"
    MERGED_MODEL = "merged_model"
    GGUF_MODEL = "gguf_model"
    SERVING_HANDOFF = "serving_handoff"


ArtifactFile = NewType("ArtifactFile", str)
"""The name of a file, or of a folder of files, in an artifact.

There is one class of names for each kind. A stage runs again if the class of a kind that it reads or writes changes,
not for other kinds.
"""


class SnapshotFile:
    """Files of a `WORKSPACE_SNAPSHOT`."""

    SOURCES: Final = ArtifactFile("sources.json")


class CorpusFile:
    """Files of an `EXTRACTED_CORPUS`."""

    RECORDS: Final = ArtifactFile("records.jsonl")
    TELEMETRY: Final = ArtifactFile("telemetry.jsonl")
    FILES: Final = ArtifactFile("files.jsonl")
    REPORT: Final = ArtifactFile("report.json")


class SyntheticFile:
    """Files of a `SYNTHETIC_CORPUS`."""

    PAIRS: Final = ArtifactFile("synthetic.jsonl")
    REPORT: Final = ArtifactFile("report.json")


class PairsFile:
    """Files of `VALIDATED_PAIRS`, besides the files of each source of pairs."""

    PAIRS: Final = ArtifactFile("pairs.jsonl")
    QUARANTINE: Final = ArtifactFile("quarantine.jsonl")


class SplitFile:
    """Files of a `HELDOUT_SPLIT`, besides the training rows of each source of pairs."""

    HELDOUT: Final = ArtifactFile("heldout.jsonl")
    ASIDE: Final = ArtifactFile("aside.jsonl")
    FAMILIES: Final = ArtifactFile("families.jsonl")


class TrainSetFile:
    """Files of a `MIXED_TRAIN_SET`."""

    TRAIN: Final = ArtifactFile("train.jsonl")


class PlanFile:
    """Files of a `RUN_PLAN`."""

    PLAN: Final = ArtifactFile("plan.json")


class AdapterFile:
    """Files of a `QLORA_ADAPTER`; `ADAPTER` is the folder that PEFT reads."""

    ADAPTER: Final = ArtifactFile("adapter")
    MANIFEST: Final = ArtifactFile("training_manifest.json")
    TELEMETRY: Final = ArtifactFile("telemetry.jsonl")
    CONTRACT: Final = ArtifactFile("contract.json")
    PREFLIGHT: Final = ArtifactFile("training-preflight.json")


class GenerationFile:
    """Files of `GENERATIONS`."""

    COMPLETIONS: Final = ArtifactFile("completions.jsonl")


class EvalFile:
    """Files of `EVAL_RESULTS`."""

    RESULTS: Final = ArtifactFile("eval_results.json")
    LOCAL_REPORT: Final = ArtifactFile("eval_local_report.json")
    BENCHMARK: Final = ArtifactFile("benchmark_passatk.json")
    SCORED_COMPLETIONS: Final = ArtifactFile("scored_completions.jsonl")
    INSERTS: Final = ArtifactFile("infill_completions.jsonl")


class ReplayFile:
    """Files of a `HISTORY_REPLAY`, besides `EvalFile.INSERTS`."""

    RESULTS: Final = ArtifactFile("replay_results.json")


class GateFile:
    """Files of a `BENCHMARK_GATE`, which copies the results and the training manifest."""

    RECEIPT: Final = ArtifactFile("gate_receipt.json")
    PAGE: Final = ArtifactFile("report.html")
    FAILED: Final = ArtifactFile("eval_gate_failed.json")


class PromotedFile:
    """Files of a `PROMOTED_ADAPTER`, besides copies of the files of its adapter and its gate."""

    OVERRIDE: Final = ArtifactFile("gate_override.json")
    BILL: Final = ArtifactFile("bom.cdx.json")


class MergedFile:
    """Files of a `MERGED_MODEL`, besides the model."""

    MANIFEST: Final = ArtifactFile("merge_manifest.json")
    REPORT: Final = ArtifactFile("merge_report.json")
    COMPARISONS: Final = ArtifactFile("comparisons.jsonl")


class GgufFile:
    """Files of a `GGUF_MODEL`, besides the model."""

    REPORT: Final = ArtifactFile("gguf_report.json")
    MODELFILE: Final = ArtifactFile("Modelfile")


class HandoffFile:
    """Files of a `SERVING_HANDOFF`, besides the files of the merged model."""

    HANDOFF: Final = ArtifactFile("external_serving_handoff_v1.json")
    DETAILS: Final = ArtifactFile("mens_handoff_v1.json")
