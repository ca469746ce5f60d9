"""A workspace with secrets and persons gives records without them, each counted with its reason."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mix import MixConfig, MixSource, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import read_sources
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, CorpusDetails, build_extracted_corpus
from mens_pipeline.corpus.extract.workspace import page_records
from mens_pipeline.corpus.schema.reasons import MixDrop
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore, key_of
from mens_pipeline_tests.every import every

_KEY = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT" * 2
_MAIL = "maria.gonzalez@firm.de"
_PROGRAM = f'// by Maria Gonzalez {_MAIL}\nfn f() to str {{\n    return "{_KEY}"\n}}\n'
_PROSE = f"Whoever wants to know more about this function may write to {_MAIL}, who answers within a day or two. " * 2
_PAGE = f"---\ntraining_eligible: true\n---\n\n# Keys\n\n## How\n\n{_PROSE}\n\n```vox\n{_PROGRAM}```\n"


def test_a_header_that_names_an_author_is_read_as_a_comment(tmp_path: Path) -> None:
    page = _PAGE.replace(_PROGRAM, "fn f() to int { return 1 }\n").replace(_MAIL, "them")
    (tmp_path / "page.md").write_text(page.replace("---\n\n#", "author: Jane Doe\n---\n\n#"))
    corpus, _ = build_extracted_corpus(tmp_path, ArtifactStore(tmp_path / "store"))

    assert "Jane" not in (corpus.path / RECORDS).read_text()
    assert set(CorpusDetails.of(corpus).redactions) == {"author"}


@every(
    "case",
    [
        (".vox", _PROGRAM, {"access_token": 1, "author": 1}),
        (".vox", _PROGRAM + _PROGRAM.replace("f()", "g()"), {"access_token": 2, "author": 2}),
        (".md", _PAGE, {"access_token": 1, "author": 1, "email": 2}),
        (".md", _PAGE.replace("---\n\n#", "author: Jane Doe\n---\n\n#"), {"access_token": 1, "author": 2, "email": 2}),
    ],
)
def test_a_secret_in_several_records_counts_once(tmp_path: Path, case: tuple[str, str, dict[str, int]]) -> None:
    suffix, text, counts = case
    folder = tmp_path / key_of({"case": case})[:8]
    folder.mkdir()
    (folder / f"keys{suffix}").write_text(text)
    corpus, _ = build_extracted_corpus(folder, ArtifactStore(tmp_path / "store"))

    assert CorpusDetails.of(corpus).redactions == counts


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A program that is masked, one that masking would change, and pages."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "key.vox").write_text(_PROGRAM)
    (folder / "card.vox").write_text("fn card() to int {\n    return 4242424242424242\n}\n")
    (folder / "page.md").write_text(_PAGE)
    (folder / "includes.md").write_text(_PAGE.replace(_PROGRAM, "{{#include key.vox}}\n").replace(_MAIL, "them"))
    return folder


@pytest.mark.threat("R6")
@pytest.mark.parametrize("policy", list(RedactionPolicy))
def test_secrets_are_masked_or_dropped(workspace: Path, tmp_path: Path, policy: RedactionPolicy) -> None:
    store = ArtifactStore(tmp_path / "store")
    build_extracted_corpus(workspace, store, redaction=RedactionPolicy.OFF)
    corpus, reuse = build_extracted_corpus(workspace, store, redaction=policy)
    text = (corpus.path / RECORDS).read_text()
    details = CorpusDetails.of(corpus)
    units = {unit: (counts.kept, counts.dropped) for unit, counts in details.units.items()}

    if policy is RedactionPolicy.OFF:
        assert reuse.is_whole
        assert details.redactions == {}
        assert all(secret in text for secret in (_KEY, _MAIL, "Gonzalez", "4242424242424242"))
        return
    assert not reuse.known
    assert not any(secret in text for secret in (_KEY, _MAIL, "Gonzalez", "4242424242424242"))
    assert set(details.redactions) == {"access_token", "author", "card_number", "email"}
    assert all(counts.seen == counts.kept + sum(counts.dropped.values()) for counts in details.units.values())
    if policy is RedactionPolicy.MASK:
        assert units["vox_file"] == (1, {"sensitive": 1})
        assert (units["block"], units["section"]) == ((2, {}), (2, {}))
    else:
        assert units["vox_file"] == (0, {"sensitive": 2})
        assert (units["block"], units["section"]) == ((0, {"sensitive": 2}), (1, {"sensitive": 1}))


@pytest.mark.threat("R6")
def test_pages_of_other_folders_are_masked(workspace: Path) -> None:
    texts = [record.text for record in page_records([workspace], set())]

    assert len(texts) == 4
    assert not any(_KEY in text or _MAIL in text for text in texts)


def test_the_command_reports_redactions(workspace: Path, tmp_path: Path) -> None:
    output, report = tmp_path / "out.jsonl", tmp_path / "report.json"
    printed = CliRunner().invoke(app, f"corpus extract {workspace} -o {output} --report {report}").stdout
    document = json.loads(report.read_text())

    assert "1  sensitive" in printed
    assert "masked or dropped (redaction in config/pipeline.yaml)" in printed
    assert "access_token" in printed
    assert [drop["detail"] for drop in document["drops"] if drop["reason"] == "sensitive"] == ["1 card_number"]
    assert _KEY not in output.read_text() + report.read_text() + printed


@pytest.mark.threat("R6")
def test_rows_of_other_sources_are_masked_before_they_are_mixed(tmp_path: Path) -> None:
    rows = [
        TrainingPair(prompt=f"Mail {_MAIL}", response="fn f() to int { return 1 }\n"),
        TrainingPair(prompt="Card", response="fn f() to int { return 4242424242424242 }\n"),
    ]
    write_jsonl(tmp_path / "a.jsonl", rows)
    config = MixConfig(sources=(MixSource(path="a.jsonl"),))
    masked, off = (
        mix_sources(config, read_sources(config, tmp_path, policy))
        for policy in (RedactionPolicy.MASK, RedactionPolicy.OFF)
    )

    assert [row.prompt for row in masked.rows] == ["Mail REDACTED_EMAIL"]
    assert masked.sources[0].dropped[MixDrop.SENSITIVE] == 1
    assert sorted(row.prompt for row in off.rows) == ["Card", f"Mail {_MAIL}"]
