"""The examples of README and of the pages of language and data are real."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.settings import PROJECT_ROOT

_PAGES = "".join(
    (PROJECT_ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/language.md", "docs/data.md")
)
_PAIR_OF = "golden/agentic/cancellable_star_survey.vox"


def _find_block(language: str, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", _PAGES, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if containing in block)
    return str(block)


def test_check_prints_the_output_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo.vox").write_text(_find_block("vox", "@server"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "demo.vox"])
    shown = _find_block("console", "mens check demo.vox").split("\n", 1)[1]

    assert result.stdout + result.stderr == shown


def test_the_readme_begins_with_two_commands() -> None:
    readme = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line.split("#")[0].strip() for line in re.findall(r"^\$ (.*)$", readme, re.MULTILINE)]

    assert commands[:2] == ["make demo", "make run"]
    assert readme.index("![") < readme.index("$ make demo") < readme.index("95 %")


def test_stream_replies_with_the_output_of_the_page() -> None:
    result = CliRunner().invoke(app, ["check", "--jsonl", "-"], input='{"id": 2, "source": "fn f("}\n')

    assert json.loads(result.stdout) == json.loads(_find_block("json", '"id": 2'))


def test_extract_prints_the_output_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["corpus", "extract", str(PROJECT_ROOT / "data"), "-o", "records.jsonl"])

    assert result.stdout == _find_block("console", "mens corpus extract data -o records.jsonl").split("\n", 1)[1]


def test_the_pair_of_the_page_is_from_the_seed_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.loads(_find_block("json", "is_bright"))
    source = tmp_path / _PAIR_OF
    source.parent.mkdir(parents=True)
    source.write_bytes((PROJECT_ROOT / "data" / _PAIR_OF).read_bytes())
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["corpus", "extract", str(tmp_path), "-o", "records.jsonl"])
    CliRunner().invoke(app, ["corpus", "pairs", "records.jsonl", "-o", "pairs.jsonl"])
    pairs = map(json.loads, (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    (pair,) = (pair for pair in pairs if pair["prompt"] == shown["prompt"])

    assert {name: pair[name] for name in ("response", "category")} == {
        name: shown[name] for name in ("response", "category")
    }
    assert pair["tests"].startswith(shown["tests"])
    assert pair["tests"].count("@test") - shown["tests"].count("@test") == 6


def test_library_sample_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(_find_block("python", "analyze("), "language.md", "exec"), {})  # noqa: S102 - our own sample

    assert capsys.readouterr().out.startswith("function add ('Adds.',) fn add(a: int")
