"""`mens test`, for people and for programs."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import Result

from mens_pipeline.language.interpreter import Sandbox
from mens_pipeline_tests.cli.invoking import invoke

_GOOD = "fn double(n: int) to int { return n * 2 }\n@test fn doubles() { assert(double(2) is 4) }\n"
_BAD = """fn half(n: int) to int { return n / 2 }
@test fn halves() {
    print("trying")
    assert(half(4) is 3)
}
@test fn by_zero() { let x = 1 / 0 }
@test fn reads() { let x = std.fs.read("x") }
@test fn turns() { loop { } }
@test fn holds() { assert(half(4) is 2) }
"""


def _test(*arguments: str | Path) -> Result:
    return invoke("test", *arguments)


def _write(folder: Path, name: str, source: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return path


def test_passing_tests_exit_0_and_print_nothing_but_a_count(tmp_path: Path) -> None:
    result = _test(_write(tmp_path, "good.vox", _GOOD))

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "1/1 tests passed (100.0 %)\n")


def test_failures_read_like_a_compiler(tmp_path: Path) -> None:
    path = _write(tmp_path, "bad.vox", _BAD)
    result = _test(path)

    assert result.exit_code == 1
    assert result.stdout == (
        f"{path}:4:5: failed[wrong_answer]: halves: expected `left is right` (left: 2, right: 3)\n"
        " | trying\n"
        f"{path}:6:30: error[DivisionByZero]: by_zero: an integer is divided by 0\n"
        f"{path}:7:28: unsupported[fs]: reads: `std.fs` needs fs, which this run does not provide\n"
        f"{path}:8:7: limit[StepLimit]: turns: more than 1,000,000 steps\n"
    )
    assert result.stderr == "1/5 tests passed (20.0 %)\n"


def test_rejected_files_show_their_diagnostics(tmp_path: Path) -> None:
    _write(tmp_path, "a.vox", "fn f( {")
    _write(tmp_path, "b.vox", b"\xff")
    _write(tmp_path, "c.vox", "#" * 300_000)
    _write(tmp_path, "d.vox", _GOOD)
    result = _test(tmp_path)

    assert result.exit_code == 1
    assert "a.vox:1:7: error[expected-name]" in result.stdout
    assert "b.vox:1:1: error[invalid-utf8]" in result.stdout
    assert "c.vox:1:1: failed[rejected]: the program has 300,000 bytes; the most is 262,144\n" in result.stdout
    assert result.stderr == "1/1 tests passed (100.0 %)\n"


def test_tests_that_are_left_out_are_noted(tmp_path: Path) -> None:
    path = _write(tmp_path, "many.vox", "".join(f"@test fn t{k}() {{ assert(true) }}\n" for k in range(201)))

    assert _test(path).stdout.startswith(f"{path}: note: 1 tests beyond the first 200 ")


def test_json_is_one_document(tmp_path: Path) -> None:
    _write(tmp_path, "bad.vox", _BAD)
    _write(tmp_path, "good.vox", _GOOD)
    result = _test("--json", tmp_path)
    document = json.loads(result.stdout)
    bad, good = document["files"]

    assert (result.exit_code, document["num_tests"], document["num_passed"]) == (1, 6, 2)
    assert (good["status"], good["error_class"], good["tests"][0]["outcome"]) == ("ran", None, "passed")
    assert [test["reason"] for test in bad["tests"]] == [None, "DivisionByZero", "fs", "StepLimit", None]
    assert (bad["error_class"], bad["tests"][0]["line"], bad["tests"][0]["column"]) == ("wrong_answer", 4, 4)


def test_files_without_tests_alone_are_misuse(tmp_path: Path) -> None:
    path = _write(tmp_path, "none.vox.ui", "state n = 0\n")

    assert _test(path).exit_code == 2
    assert _test(path).stderr.startswith("0/0 tests passed\nno @test function and no @forall property")
    assert _test(path, _write(tmp_path, "good.vox", _GOOD)).exit_code == 0


@pytest.mark.parametrize(
    ("source", "option", "exit_codes"),
    [
        ("@require(n > 0)\nfn f(n: int) to int { return n }\n@test fn t() { f(0) }", "--contracts", (0, 1)),
        ("@table type N { a: int }\n@test fn t() { assert(db.N.count() is 0) }", "--database", (1, 0)),
    ],
)
def test_features_are_off_by_default(tmp_path: Path, source: str, option: str, exit_codes: tuple[int, int]) -> None:
    path = _write(tmp_path, "x.vox", source)

    assert (_test(path).exit_code, _test(option, path).exit_code) == exit_codes


def test_the_seed_changes_the_arguments(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.vox", "@forall fn t(s: str) { print(s) assert(true) }")
    first, again, other = (_test("--json", "--seed", seed, path).stdout for seed in ("1", "1", "2"))

    assert first == again != other


def test_scripts_are_read_in_the_given_mode(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.vox", "@test fn t() { assert(true) }\nprint(1)\n")

    assert (_test(path, "--mode", "script").exit_code, _test(path).exit_code) == (0, 1)


_HOSTILE: dict[str, bytes] = {
    "later": b"fn f() to int {\n    return 1\n}\n// caf\351\n",
    "bytes": bytes(range(256)) * 9,
    "utf16": "fn f() { }".encode("utf-16"),
    "nul": b"\0" * 999,
    "deep": b"fn f() { return " + b"(" * 9_000,
    "words": b"fn f() { " + b"b " * 9_000 + b"}",
    "loop": b"@test fn t() { loop { } }",
    "half": rb"""@test fn t() { panic(json.parse("\"\\ud800\"")) }""",
    "escape": b"@test fn t() { panic('\x1b[31m') }",
    "string": b'let a = "' + b"a" * 9_000,
    "empty": b"",
}


@pytest.mark.parametrize("command", ["test", "check", "corpus"])
def test_a_bad_file_does_not_stop_the_others(tmp_path: Path, command: str) -> None:
    for name, content in _HOSTILE.items():
        _write(tmp_path, f"{name}.vox", content)
    good = _write(tmp_path, "z.vox", _GOOD)
    large = _write(tmp_path, "large.vox", b"")
    os.truncate(large, 67_108_865)
    if command == "corpus":
        output, report = tmp_path / "records.jsonl", tmp_path / "report.json"
        result = invoke("corpus", "extract", tmp_path, "-o", output, "--report", report)
        assert result.exit_code == 0, result.output
        assert '"z.vox"' in output.read_text()
        assert "large.vox" in report.read_text()
        return
    text, document = invoke(command, tmp_path), invoke(command, "--json", tmp_path)
    reported = {Path(file["path"]).stem: file for file in json.loads(document.stdout)["files"]}

    assert (text.exit_code, document.exit_code) == (1, 1)
    assert reported.keys() == {*_HOSTILE, "z", "large"}
    assert "larger than 67108864 bytes. Name a readable file." in text.stdout
    assert f"{tmp_path / 'later.vox'}:4:" in text.stdout
    assert str(good) not in text.stdout


def test_missing_protections_of_the_sandbox_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"files": "", "system calls": "Invalid argument"}
    monkeypatch.setattr(Sandbox, "kept_out", lambda _sandbox: kept)
    path = tmp_path / "a.vox"
    path.write_text("@test fn t() { assert(true) }")
    result = _test(path)

    details = "warning: this system does not protect against: system calls (Invalid argument)\n"
    assert result.stderr == f"{details}1/1 tests passed (100.0 %)\n"
