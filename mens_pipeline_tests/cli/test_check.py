"""`mens check`, for people and for programs."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app

_GOOD = "fn f() { }\n"
_BAD = "fn f() {\n    let x = 1;\n    if a && b { }\n}\n"


def _check(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)], input=stdin)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with a good, a bad and a reactive file, and some that are not checked."""
    (tmp_path / "good.vox").write_text(_GOOD)
    (tmp_path / "bad.vox").write_text(_BAD)
    (tmp_path / "view.vox.ui").write_text("state n = 0\n")
    (tmp_path / "notes.md").write_text("not Vox")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.vox").write_text("(")
    return tmp_path


def test_good_file_exits_0_and_prints_nothing_but_a_count(workspace: Path) -> None:
    result = _check(workspace / "good.vox")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "accepted 1/1 (100.0 %), errors 0, warnings 0\n"


def test_bad_file_reads_like_a_compiler(workspace: Path) -> None:
    path = workspace / "bad.vox"
    result = _check(path)

    assert result.exit_code == 1
    assert result.stdout == (
        f"{path}:2:14: warning[dropped-characters]: `;` means nothing in Vox and is ignored\n"
        " 2 |     let x = 1;\n"
        "   |              ^\n"
        "   = help: Statements need no separator.\n"
        f"{path}:3:13: error[expected-token]: expected `{{` to open a block, found identifier `b`\n"
        " 3 |     if a && b { }\n"
        "   |             ^\n"
        "   = help: `&&` before it is ignored by Vox. Write `and`.\n"
    )


def test_json_is_one_document_without_colours(workspace: Path) -> None:
    result = _check("--json", workspace)
    document = json.loads(result.stdout)
    bad, good, view = document["files"]

    assert (result.exit_code, document["num_files"], document["num_rejected"]) == (1, 3, 1)
    assert (good["ok"], good["declarations"], good["constructs"]) == (True, ["Function"], {"fn": 1})
    assert (view["declarations"], view["constructs"]) == (["ReactiveModule"], {"other": 1})
    assert bad["diagnostics"][0] == {
        "line": 3,
        "column": 12,
        "offset": 36,
        "code": "expected-token",
        "message": "expected `{` to open a block, found identifier `b`",
        "advice": "`&&` before it is ignored by Vox. Write `and`.",
    }
    assert [warning["code"] for warning in bad["warnings"]] == ["dropped-characters"]


@pytest.mark.parametrize(("mode", "exit_code"), [("source", 1), ("script", 0), ("ui", 1), ("auto", 1)])
def test_reads_a_program_in_the_given_mode(mode: str, exit_code: int) -> None:
    assert _check("-", "--mode", mode, stdin="print(1)\n").exit_code == exit_code


def test_standard_input_has_a_name_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _check("-", stdin="x").stdout.startswith("<stdin>:1:1: error[expected-declaration]: ")
    monkeypatch.setattr("mens_pipeline.cli.check.MAX_REQUEST_BYTES", 4)
    assert _check("-", stdin="12345").stdout == "<stdin>: larger than 4 bytes. Send less.\n"


def test_bytes_that_are_not_utf8_are_shown_safely(tmp_path: Path) -> None:
    (tmp_path / "x.vox").write_bytes(b"let a = 1\x07\xff\xfe")
    result = _check(tmp_path / "x.vox")

    assert result.exit_code == 1
    assert "x.vox:1:11: error[invalid-utf8]: byte 0xFF is not UTF-8" in result.stdout
    assert "\x07" not in result.stdout


def test_long_lines_are_cut_around_the_place(tmp_path: Path) -> None:
    (tmp_path / "x.vox").write_text("fn f() { " + "a " * 5000 + ") " + "b " * 5000 + "}")
    shown, marks = _check(tmp_path / "x.vox").stdout.splitlines()[-2:]

    assert len(shown) < 120
    assert shown[marks.index("^")] == ")"


@pytest.mark.parametrize("line", ["\tlet x = )", "let x = '日本' )", "let x = 'e\u0301' )"])
def test_caret_is_below_its_text(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.vox").write_text(line)
    shown, marks = _check(tmp_path / "x.vox").stdout.splitlines()[-2:]
    width = {"日": 2, "本": 2, "\u0301": 0}
    before = shown[: shown.index(")")]

    assert marks.index("^") == sum(width.get(character, 1) for character in before)


def test_replies_are_in_the_order_of_the_lines() -> None:
    requests = [
        {"id": "a", "source": "import b\nfn f() { }"},
        {"id": 2, "source": "x = 1", "mode": "script"},
        {"id": "b", "source": "fn f() { }", "mode": "auto"},
        {"id": None, "source": "fn f("},
        {"id": 3, "source": "let x = \ud800 1"},
    ]
    result = _check("--jsonl", "-", stdin="".join(json.dumps(request) + "\n" for request in requests))
    first, second, auto, third, surrogate = map(json.loads, result.stdout.splitlines())

    assert result.exit_code == 1
    assert (surrogate["id"], surrogate["ok"]) == (3, True)
    assert (first["id"], first["ok"], first["declarations"]) == ("a", True, ["Import", "Function"])
    assert first["constructs"] == {"fn": 1, "import": 1}
    assert (second["id"], second["ok"], second["diagnostics"]) == (2, True, [])
    assert (auto["id"], auto["ok"]) == ("b", True)
    assert (third["id"], third["ok"], third["declarations"], third["constructs"]) == (None, False, [], {})
    assert [d["code"] for d in third["diagnostics"]] == ["expected-name"]


def test_lines_without_rejection_exit_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"id": 1, "source": "x = 1"}\n\n{"id": 2, "source": "fn f() { }"}\n')
    result = _check("--jsonl", path, "--mode", "script")

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)

    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("mens_pipeline.cli.check.check_stream", Mock(side_effect=full))

    assert _check("--jsonl", path).exception is full  # and is not blamed on the requests


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"not json", "line 1 is not JSON"),
        (b"[1]", "line 1 is not an object"),
        (b'{"id": 7, "source": 1}', "line 1 has no text in `source`"),
        (b'{"id": 7, "source": "", "mode": "vue"}', "line 1 has mode 'vue'; write auto, source, script or ui"),
        (b'"\xff"', "line 1 is not JSON"),
        (b"[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_a_malformed_line_gets_a_reply_and_does_not_stop_the_stream(line: bytes, problem: str) -> None:
    result = _check("--jsonl", "-", stdin=line + b'\n{"id": 8, "source": ""}\n')
    bad, good = map(json.loads, result.stdout.splitlines())

    assert result.exit_code == 2
    assert problem in bad["error"]
    assert bad["ok"] is False
    assert (good["id"], good["ok"]) == (8, True)


@pytest.mark.slow
def test_the_stream_uses_constant_memory() -> None:
    """Forty times as many lines use at most 4 MiB more, a kilobyte per line."""
    code = (
        "import resource, sys; from mens_pipeline.cli.main import app\n"
        "try: app(['check', '--jsonl', '-'])\n"
        "except SystemExit: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    line = json.dumps({"id": 1, "source": "fn f(a: int) to int { return a + 1 }\n" * 10}) + "\n"

    def peak_kib(num_lines: int) -> int:
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, input=line * num_lines, capture_output=True, text=True, check=True)
        assert result.stdout.count('"ok": true') == num_lines
        return int(result.stderr.splitlines()[-1])

    assert peak_kib(4_000) - peak_kib(100) < 4 * 1024


_MEANINGLESS = "fn f() to int {\n    return cout\n}\n\nfn g(n: int) { match n { _ => 1 2 => 3 } }\n"


def test_names_and_types_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.vox"
    path.write_text(_MEANINGLESS)
    result = _check(path)

    assert result.exit_code == 1
    assert f"{path}:2:12: error[unknown-name]: no name `cout` is known here" in result.stdout
    assert f"{path}:5:33: warning[unreachable-arm]: " in result.stdout
    assert result.stderr == "accepted 1/1 (100.0 %), errors 1 (1 in names and types), warnings 1\n"
    assert (_check(path, "--syntax-only").exit_code, _check(path, "--syntax-only").stdout) == (0, "")

    path.write_text(_MEANINGLESS.replace("cout", "1"))

    assert _check(path).exit_code == 0


def test_json_has_names_and_types_beside_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "a.vox").write_text(_MEANINGLESS)
    (tmp_path / "b.vox").write_text("fn f(")
    (tmp_path / "c.vox").write_text("fn f() { }")
    result = _check("--json", tmp_path)
    first, second, third = json.loads(result.stdout)["files"]

    assert (result.exit_code, first["ok"], "semantic" in second, third["semantic"]) == (1, True, False, [])
    assert first["semantic"][0] == {
        "severity": "error",
        "line": 2,
        "column": 11,
        "offset": 27,
        "code": "unknown-name",
        "message": "no name `cout` is known here",
        "advice": None,
    }
    assert _check("--json", tmp_path / "a.vox").exit_code == 1
    assert _check("--json", tmp_path / "c.vox").exit_code == 0
    assert "semantic" not in json.loads(_check("--json", "--syntax-only", tmp_path).stdout)["files"][0]


def test_replies_have_names_and_types() -> None:
    lines = "".join(json.dumps({"id": 1, "source": source}) + "\n" for source in (_MEANINGLESS, "fn f() { }"))
    result = _check("--jsonl", "-", stdin=lines)
    first, second = map(json.loads, result.stdout.splitlines())

    assert (result.exit_code, first["ok"], second["semantic"]) == (0, True, [])
    assert [found["code"] for found in first["semantic"]] == ["unknown-name", "unreachable-arm"]
    assert "semantic" not in json.loads(_check("--jsonl", "-", "--syntax-only", stdin=lines).stdout.splitlines()[0])

    rejected = json.loads(_check("--jsonl", "-", stdin='{"id": 1, "source": "fn f("}\n').stdout)

    assert (rejected["ok"], "semantic" in rejected) == (False, False)
