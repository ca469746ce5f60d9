"""From a page to its pairs: edits of a person reach the training data."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.schema.records import Lane, TrainingPair, read_pairs

_PAGE = """---
title: "Parcels"
category: how-to
constructs: [function, workflow]
training_eligible: {eligible}
difficulty: intermediate
---

## Weigh a parcel

Weigh a parcel before it is sent.

```vox
fn weigh(parcel: str) to int {{
    return {value}
}}
```

```rust
/// Weighs a parcel, in prose that is not Vox.
fn weigh(parcel: &str) -> i64 {{ 1 }}
```
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of one program; it is the working folder."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "a.vox").write_text("fn a() { }\n")
    (tmp_path / "lib.rs").write_text("/// Rust, which nothing reads.\nfn weigh() {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _pairs(folder: Path) -> list[TrainingPair]:
    for words in (("extract", ".", "-o", "r.jsonl"), ("pairs", "r.jsonl", "-o", "p.jsonl", "--docs", "docs")):
        result = CliRunner().invoke(app, ["corpus", *words])
        assert result.exit_code == 0, result.output
    return [pair for pair in read_pairs(folder / "p.jsonl") if pair.source is None or pair.source.path != "a.vox"]


@pytest.mark.seed_row(51)
def test_an_edited_page_gives_other_pairs_and_an_opted_out_page_none(folder: Path) -> None:
    page = folder / "docs" / "parcels.md"
    found = []
    for eligible, value in (("true", 1), ("true", 2), ("false", 2), ("true", 2)):
        page.write_text(_PAGE.format(eligible=eligible, value=value))
        found.append([pair.response for pair in _pairs(folder) if pair.lane is Lane.CODEGEN])
    page.write_text(_PAGE.format(eligible="true", value=2).replace("training_eligible: true\n", ""))

    assert ["return 1" in "".join(responses) for responses in found] == [True, False, False, False]
    assert ["return 2" in "".join(responses) for responses in found] == [False, True, False, True]
    assert [len(responses) for responses in found] == [1, 1, 0, 1]
    assert _pairs(folder) == []


@pytest.mark.seed_row(50, 52)
def test_rust_never_trains_as_vox(folder: Path) -> None:
    (folder / "docs" / "parcels.md").write_text(_PAGE.format(eligible="true", value=1))
    code = [pair for pair in _pairs(folder) if pair.lane is Lane.CODEGEN]
    records = (folder / "r.jsonl").read_text()

    assert [pair.category for pair in code] == ["function"]
    assert not [pair for pair in code if "i64" in pair.response or "Rust" in pair.response]
    assert '"constructs":["function","workflow"]' in records
    assert '"difficulty":"intermediate"' in records
