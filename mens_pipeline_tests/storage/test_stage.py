"""A stage, and the inputs that decide its artifact."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from mens_pipeline.storage.stage import Content, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import ArtifactStore


class _Numbered(Params):
    """A corpus, a file, a number, and a helper that does not affect the key."""

    corpus: Parent
    file: Content | None = None
    n: int = 0
    written: Helper[list[int]] = Field(default_factory=list)


def _write_number(_folder: Path, params: _Numbered) -> dict[str, Any]:
    params.written.append(params.n)
    return {"n": params.n}


def test_a_stage_reuses_its_artifact(store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another parent, parameter or code version makes another artifact; of a file only the content counts."""
    stage = Stage("pairs", ("mens_pipeline.errors",), _write_number)
    corpora = [store.build("corpus", {"n": n}, _write_rows)[0] for n in range(2)]
    (tmp_path / "rows.txt").write_bytes((corpora[0].path / "rows.txt").read_bytes())
    given = _Numbered(corpus=corpora[0], file=corpora[0].path / "rows.txt")
    first, was_there = stage.build(store, given)
    same = given.model_copy(update={"file": tmp_path / "rows.txt", "origins": (corpora[1],)})

    assert (was_there, given.written, stage.find(store, given)) == (False, [0], first)
    assert stage.build(store, same) == (first, True)
    assert given.parents(store) == (corpora[0],)
    assert same.parents(store) == (corpora[1], corpora[0])
    (tmp_path / "rows.txt").write_text("other\n")
    others = [same, given.model_copy(update={"corpus": corpora[1]}), given.model_copy(update={"n": 1})]
    built = [stage.build(store, other) for other in others]
    monkeypatch.setattr("mens_pipeline.storage.stage.code_version", lambda *_entries, **_without: "other")
    built.append(stage.build(store, given))
    assert len({first.key, *(made.key for made, _ in built)}) == 5
    assert not any(reused for _, reused in built)
    assert not stage.build(store, given, force=True)[1]


def _write_rows(folder: Path) -> dict[str, Any]:
    (folder / "rows.txt").write_text("row\n")
    return {}
