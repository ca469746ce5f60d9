"""Mistakes in commands: exit code 2, or 1 for a refusal, one message with advice, nothing on stdout, no traceback."""

from pathlib import Path

from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.every import every

_ROWS = "Name a readable file of JSON lines."
_CASES = [
    ("check", 2, "nothing to check. Name files or folders"),
    ("check missing.vox", 2, "missing.vox: no such file or folder. Name an existing one."),
    ("check empty", 2, "no .vox files in empty."),
    ("check - -", 2, "`-` is named twice. Name files or folders"),
    ("check --jsonl - x.vox", 2, "--jsonl takes no files"),
    ("check --jsonl missing.jsonl", 2, "missing.jsonl: No such file or directory. Name a readable file."),
    ("check --mode vue -", 2, "'vue'"),
    ("test missing.vox", 2, "missing.vox: no such file or folder. Name an existing one."),
    ("test empty", 2, "no .vox files in empty."),
    ("corpus nonsense", 2, "No such command 'nonsense'"),
    ("corpus stats missing.jsonl", 2, _ROWS),
    ("corpus validate missing.jsonl -o o.jsonl", 2, _ROWS),
    ("corpus validate rows.jsonl -o o.jsonl --quarantine o.jsonl", 2, "o.jsonl: named for two purposes. Name another"),
    ("corpus infill rows.jsonl -o rows.jsonl", 2, "rows.jsonl: named for two purposes."),
    ("corpus extract loop -o o.jsonl", 1, "/loop'. Name another path, and run the command again."),
    ("corpus pairs rows.jsonl -o o.jsonl", 1, "rows.jsonl:2: invalid extracted record ("),
    ("corpus mix --config missing.yaml", 2, "No such file or directory"),
    ("run --recipe=default --recipe=wide --no-train", 2, "--no-train does not train recipes"),
    ("run --no-train --more 10m", 2, "without --more and --force-train"),
    ("promote --rollback --override o.json", 2, "Give one of them."),
    ("eval-local --trial --no-bench --heldout rows.jsonl", 2, "--no-bench and --heldout: a trial evaluates only"),
    ("run --more 9999999h", 2, "--more 9999999h: not a duration up to 100,000 minutes."),
    ("run --no-train --domain none", 2, "domain none: not in config/domains.yaml."),
    ("eval-local --run-dir missing --devices 0", 2, "Invalid value for '--devices'"),
    ("eval-local --model missing", 1, "missing/training_manifest.json: No such file"),
    (f"compare {'a' * 256} b", 1, "aaa'. Name another path, and run the command again."),
    ("grammar --format bnf", 2, "'lark', 'gbnf'"),
    ("grammar -o rows.jsonl/vox.lark", 2, "Name a file in a writable folder."),
]


@every("case", _CASES, ids=lambda case: case[0])
def test_a_mistake_prints_advice(tmp_path: Path, case: tuple[str, int, str]) -> None:
    words, code, message = case
    (tmp_path / "empty").mkdir(exist_ok=True)
    (tmp_path / "rows.jsonl").write_text("\n{}\n")
    if not (tmp_path / "loop").is_symlink():
        (tmp_path / "loop").symlink_to("loop")
    done = run_main(*words.split(), folder=tmp_path)

    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
