"""Terminals, pages and cards show text of strangers, but do not interpret it."""

import json
import logging
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app, main
from mens_pipeline.cli.run import _Line
from mens_pipeline.language import visible_text
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.models.card import DataSource, model_card, plain
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline_tests.evaluation.scored import BROKEN, evaluation, scored_completions
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base

_ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1m\u202egnp.exe\u2066\x08\x00\r"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>{{7*7}}</style></script>"


def _invoke(*arguments: object, color: bool = False) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], color=color)


@pytest.fixture
def hostile_name(tmp_path: Path) -> Path:
    """A broken program whose name holds escape sequences; slashes and NUL cannot be in one."""
    path = tmp_path / f"a{_ESCAPES.replace(chr(0), '')}.vox"
    path.write_text(f"fn {_ESCAPES}(\n")
    return path


@pytest.mark.threat("W12")
def test_no_name_or_program_controls_the_terminal(hostile_name: Path) -> None:
    plain_text, coloured = _invoke("check", hostile_name.parent), _invoke("check", hostile_name.parent, color=True)

    assert plain_text.exit_code == coloured.exit_code == 1
    assert "⟨1B⟩]0;owned⟨07⟩" in plain_text.stdout
    assert not _CONTROL.search(plain_text.output)
    assert "\x1b[" in coloured.stdout
    assert not _CONTROL.search(_COLOURS.sub("", coloured.stdout))
    assert "\x1b[2J" not in coloured.stdout
    assert json.loads(_invoke("check", "--json", hostile_name.parent).stdout)["num_rejected"] == 1


@pytest.mark.threat("W12")
def test_no_output_of_a_test_controls_the_terminal(tmp_path: Path) -> None:
    body = 'print("\x1b]0;owned\x07\x9b2J")\n    assert(false, "\x1b[2J\u202e")'
    (tmp_path / "a.vox").write_text(f"@test fn t() {{\n    {body}\n}}\n")
    result = _invoke("test", tmp_path)

    assert result.exit_code == 1
    assert "⟨1B⟩[2J" in result.stdout
    assert not _CONTROL.search(result.output)


@pytest.mark.threat("W12")
@pytest.mark.parametrize(
    "arguments", [["corpus", "stats"], ["corpus", "extract", "-o", "out.jsonl"], ["check"], ["gate", "--run-dir"]]
)
def test_no_message_controls_the_terminal(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["mens", *arguments, str(tmp_path / "missing\x1b[2J\x9b\u202e")])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr()

    assert "⟨1B⟩[2J" in shown.err
    assert not _CONTROL.search(shown.out + shown.err)


@pytest.mark.threat("W12")
def test_statistics_of_data_do_not_control_the_terminal(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "r", "category": _ESCAPES, "response_mode": "prose_only"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    result = _invoke("corpus", "stats", tmp_path / "rows.jsonl")

    assert result.exit_code == 0
    assert not _CONTROL.search(result.output)


@pytest.mark.threat("W12")
def test_a_line_of_progress_does_not_control_the_terminal() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "not promoted: %s", (_ESCAPES,), None)

    assert not _CONTROL.search(_Line("%(message)s").format(record))


@pytest.mark.measured
def test_honest_text_is_shown_unchanged() -> None:
    assert visible_text("Grüße, 世界 🙂\r\n\tfn e\u0301") == "Grüße, 世界 🙂\n\tfn e\u0301"


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.threat("W13")
def test_prompts_completions_and_names_add_no_markup_to_the_report() -> None:
    evaluated = evaluation(base=(BROKEN,) * 3, adapter=(BROKEN + _MARKUP,) * 3)
    completions = [
        completion.model_copy(update={"prompt": _MARKUP, "reference": _MARKUP, "asked": "function"})
        for completion in scored_completions(evaluated)
    ]
    honest = [
        completion.model_copy(update={"prompt": "text", "reference": "text", "asked": "function"})
        for completion in completions
    ]
    results = evaluated.results.model_copy(update={"run_id": _MARKUP})
    page, honest_page = (
        report_page(results, completions, {1: 1.0}, None),
        report_page(evaluated.results, honest, {1: 1.0}, None),
    )
    tags = _Tags(page).found

    assert [tag for tag, _ in tags if tag in {"script", "img", "svg", "style"}] == [
        tag for tag, _ in _Tags(honest_page).found if tag in {"script", "img", "svg", "style"}
    ]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)" in page
    assert "{{7*7}}" in page
    policies = [attributes["content"] or "" for tag, attributes in tags if attributes.get("http-equiv")]
    assert any("default-src 'none'" in policy and "unsafe" not in policy for policy in policies)


_LINKS = "[click](https://evil.example) ![](https://evil.example/x.png) <img src=x> `a` | cell |\n# Head\n- item"


def _parse_kinds(markdown: str) -> set[str]:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    return {child.type for token in tokens for child in (token, *(token.children or ()))}


@pytest.mark.threat("W13")
def test_a_reason_is_not_markdown() -> None:
    kinds = _parse_kinds(f"- {plain(_LINKS)}")

    assert kinds <= {
        *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
        *("paragraph_open", "paragraph_close", "inline", "text", "text_special"),
    }
    assert plain("a 95 % interval (1 to 2), *p* = 0.5") == "a 95 % interval (1 to 2), *p* = 0.5"


@pytest.mark.threat("W13")
def test_a_card_contains_no_markdown_of_strangers() -> None:
    hostile = f"x\nevil: true\n---\n{_LINKS}"
    manifest = TrainingManifest.model_validate(manifest_about(described_base()))
    fields = dict.fromkeys(("name", "architecture", "licence", "revision"), hostile)
    base = manifest.base_model.model_copy(update=fields)
    card = model_card(
        manifest.model_copy(update={"base_model": base}), sources=[DataSource(hostile, 1, 1.0)], data_licence=hostile
    )
    head, _, body = card.removeprefix("---\n").partition("\n---\n")

    details = yaml.safe_load(head)

    assert "evil" not in details
    assert details["base_model"] == details["license"] == hostile
    assert not _parse_kinds(body) & {"html_inline", "html_block", "link_open", "image"}
