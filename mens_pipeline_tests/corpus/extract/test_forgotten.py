"""The list of files that were withdrawn."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.mix import MixConfig, MixSource, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import read_sources
from mens_pipeline.corpus.curate.pipeline_config import load_source_policy
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.extract.forgotten import Forgotten, SourcePolicy, load_forgotten
from mens_pipeline.corpus.extract.sources import OwnSources, SourceRoots
from mens_pipeline.corpus.extract.workspace import carried_records, extract_workspace, page_records
from mens_pipeline.corpus.schema.reasons import LeaveReason, MixDrop
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.every import every_row

_DIGEST = "0123456789abcdef"
_FILE = Forgotten(path="a/b.vox", sha256=(_DIGEST,), reason='says "no"\n- licence: MIT')
_LICENCE = Forgotten(licence="GPL-*", reason="\udcff 👍\u2028")


@every_row(
    ("a/b.vox", "f" * 64, True),
    ("elsewhere.vox", _DIGEST + "0" * 48, True),
    ("a/b.vox/c.vox", "f" * 64, True),
    ("a/b.vox.ui", "f" * 64, False),
    ("b.vox", "f" * 64, False),
)
def test_a_path_and_its_contents_are_kept_out(path: str, sha256: str, *, is_held: bool) -> None:
    assert _FILE.holds(path, sha256) is is_held
    assert not _LICENCE.holds(path, sha256)


def test_the_list_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "forgotten.yaml"
    before = load_forgotten(path)
    path.write_text("# nothing yet\n")
    empty = load_forgotten(path)
    path.write_text("# these:\n" + _FILE.format() + _LICENCE.format())

    assert (before, empty) == ((), ())
    assert load_forgotten(path) == (_FILE, _LICENCE.model_copy(update={"reason": "\\udcff 👍\u2028"}))
    assert load_forgotten(PIPELINE_CONFIG.with_name("forgotten.yaml")) == ()


@every_row(
    ("- {reason: x}", "0: an entry needs either `path` or `licence`"),
    ("- {path: a.vox, licence: MIT}", "0: an entry needs either `path` or `licence`"),
    ("- {path: /a.vox}", "0.path: '/a.vox' is not a path below the workspace"),
    ("- {path: ../a.vox}", "0.path: '../a.vox' is not a path below the workspace"),
    ("- {path: .}", "0.path: '.' is not a path below the workspace"),
    ("- {path: a.vox, sha256: [abc]}", "0.sha256: 'abc': expected 16 to 64 hexadecimal digits"),
    ("- {path: a.vox, sha256: [ABCDEF0123456789]}", "expected 16 to 64 hexadecimal digits"),
    ("- {licence: GPL}", "'GPL' is not an SPDX id. Did you mean `GPL-2.0`"),
    ("- {path: a.vox, why: x}", "0.why: unknown"),
    ("path: a.vox", "Input should be a valid tuple"),
)
def test_a_wrong_entry_is_named(entry: str, problem: str, tmp_path: Path) -> None:
    """Otherwise a withdrawn file would train."""
    path = tmp_path / "forgotten.yaml"
    path.write_text(entry)

    with pytest.raises(ConfigurationError) as refused:
        load_forgotten(path)
    assert problem in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_policy_joins_the_list_with_denied_licences() -> None:
    policy = SourcePolicy.of((_FILE, _LICENCE), ("MIT",))

    assert policy.model_dump() == {
        "deny": ("MIT", "GPL-*"),
        "forgotten": ({"path": "a/b.vox", "sha256": (_DIGEST,), "licence": None},),
    }
    assert [policy.refuses("c.vox", "f", licence) for licence in (None, "GPL-3.0", "MIT", "Apache-2.0")] == [
        *(False, True, True, False)
    ]
    assert policy.refuses("a/b.vox", "f", None)


def test_forgotten_files_are_counted_in_all_stages(tmp_path: Path, store: ArtifactStore) -> None:
    root, records = tmp_path / "workspace", tmp_path / "records.jsonl"
    (root / "theirs").mkdir(parents=True)
    for name in ("a", "theirs/b"):
        (root / f"{name}.vox").write_text(f"fn {name[-1]}() {{ }}\n")
    blocks = "".join(f"```vox\n{{{{#include {name}.vox}}}}\n```\n" for name in ("a", "theirs/b"))
    (root / "p.md").write_text(f"---\ntraining_eligible: true\n---\n{blocks}")
    records.write_text("".join(f"{line}\n" for outcome in extract_workspace(root) for line in outcome.lines))
    pairs = [pair_at("a.vox", "p", "fn a() { }\n"), pair_at("theirs/b.vox", "q", "fn b() { }\n")]
    write_jsonl(tmp_path / "pairs.jsonl", pairs)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE_CONFIG.read_text())
    (tmp_path / "forgotten.yaml").write_text(Forgotten(path="theirs", reason="asked").format())
    policy, mix = load_source_policy(tmp_path / "pipeline.yaml"), MixConfig(sources=(MixSource(path="pairs.jsonl"),))

    corpora = [build_extracted_corpus(root, store, licences=which)[0] for which in (None, policy, policy)]
    carried = carried_records(records, root / "none", OwnSources(root), SourceRoots(root), policy)
    (mixed,) = mix_sources(mix, read_sources(mix, tmp_path, policy=policy)).sources

    assert [corpus.manifest["units"]["vox_file"]["dropped"] for corpus in corpora[:2]] == [{}, {"forgotten": 1}]
    assert corpora[1].manifest["units"]["block"]["dropped"] == {"forgotten": 1}
    assert corpora[1] == corpora[2]
    assert corpora[1].inputs["licences"] == {
        "deny": [],
        "forgotten": [{"path": "theirs", "sha256": [], "licence": None}],
    }
    assert carried.dropped == {LeaveReason.FORGOTTEN: 1}
    assert [len(page_records([root], (), policy=which)) for which in (None, policy)] == [2, 1]
    assert ([pair.prompt for pair in mixed.distinct], mixed.dropped[MixDrop.FORGOTTEN]) == (["p"], 1)
