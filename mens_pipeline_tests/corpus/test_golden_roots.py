"""Golden roots select the programs that are held out, rated highest, and counted in the source parse rate."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import group_of, split_pairs
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.curate.validated_pairs import make_pairs
from mens_pipeline.corpus.extract.extracted_corpus import SNAPSHOT_STAGE, SnapshotParams, source_report_in
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceKind, TrainingPair
from mens_pipeline.storage.store import ArtifactStore

pytestmark = pytest.mark.seed_row(42)

_PROGRAM = (
    "// Adds {0} to the sum of those above it.\n"
    "fn add_{0}(a: List[int]) to int {{ return a.filter(x => x > {0}).sum() + {0} }}\n"
)
_POLICY = SplitPolicy(heldout_share=0.999, seed=0, max_overlap=1.0, min_nodes=1_000)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two golden programs, two of a sandbox, one of them broken, and a broken one that is negative on purpose."""
    root = tmp_path / "workspace"
    files = {"golden/one": 1, "golden/two": 2, "sandbox/three": 3}
    for name, number in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.vox").write_text(_PROGRAM.format(number))
    for name in ("sandbox", "golden/bad"):
        (root / name).mkdir(exist_ok=True)
        (root / name / "broken.vox").write_text("fn (")
    (root / "page.md").write_text(
        f"---\ntraining_eligible: true\n---\n## A page\n\nIt adds.\n\n```vox\n{_PROGRAM.format(9)}```\n"
    )
    (root / "examples.ssot.v1.yaml").write_text("negative_roots: [golden/bad]\n")
    return root


def _give_golden_roots(workspace: Path) -> None:
    (workspace / "examples.ssot.v1.yaml").write_text("negative_roots: [golden/bad]\ngolden_roots: [golden]\n")


def _pairs(workspace: Path) -> list[TrainingPair]:
    lines = (line for outcome in extract_workspace(workspace) for line in outcome.lines)
    with BehaviourWorkers() as workers:
        return list(make_pairs((ExtractedRecord.model_validate_json(line) for line in lines), workers))


def _find_heldout(pairs: list[TrainingPair]) -> tuple[set[str | None], int]:
    with BehaviourWorkers() as workers:
        split = split_pairs({"pairs": pairs}, Repetition(None), _POLICY, workers)
    return {group_of(pair) for pair in pairs} - {group_of(pair) for pair in split.train["pairs"]}, split.num_groups


def test_only_golden_programs_are_held_out_and_rated_highest(workspace: Path) -> None:
    everywhere = _pairs(workspace)
    _give_golden_roots(workspace)
    pairs = _pairs(workspace)
    ratings = {pair.source.path: pair.rating for pair in pairs if pair.source and pair.lane == "vox_codegen"}
    (origin,) = (pair for pair in pairs if pair.source and pair.source.path == "sandbox/three.vox")
    assert origin.source is not None
    derived = origin.source.model_copy(update={"kind": SourceKind.EVOLVED})
    changed = origin.model_copy(update={"prompt": "another", "source": derived})

    assert _find_heldout(everywhere) == ({"golden/one.vox", "golden/two.vox", "sandbox/three.vox", "page.md"}, 4)
    assert _find_heldout([*pairs, changed]) == ({"golden/one.vox", "golden/two.vox", "page.md"}, 3)
    assert {pair.rating for pair in everywhere if pair.source and pair.source.path.endswith(".vox")} == {5}
    assert ratings == {"golden/one.vox": 5, "golden/two.vox": 5, "sandbox/three.vox": 4, "page.md": 4}


def test_the_parse_rate_is_that_of_golden_programs(workspace: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")

    def rate() -> tuple[float | None, int]:
        files = sorted(path for path in workspace.rglob("*.vox"))
        contents = [(path.relative_to(workspace).as_posix(), path.read_bytes()) for path in files]
        snapshot, _ = SNAPSHOT_STAGE.build(store, SnapshotParams.pin(workspace, contents=lambda: contents))
        report = source_report_in(snapshot)
        return report.parse_rate, len(report.rejected)

    without = rate()
    _give_golden_roots(workspace)

    assert (without, rate()) == ((0.75, 2), (1.0, 2))
