"""A hostile repository: names, links, pipes, headers, roots and includes."""

import os
import re
import subprocess
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.extract.extractors import MAX_PAGE_LINES, PageExtraction, extract_docs, extract_vox
from mens_pipeline.corpus.extract.git import head_commit
from mens_pipeline.corpus.extract.metadata import training_prompt
from mens_pipeline.corpus.extract.page import Allowance, IncludeError, resolve_includes
from mens_pipeline.corpus.extract.sources import (
    ROOTS_FILE,
    VOX_SUFFIXES,
    OwnSources,
    files_below,
    find_newest_commit,
    vox_files,
)
from mens_pipeline.corpus.extract.workspace import FileOutcome, extract_workspace
from mens_pipeline.corpus.schema.account import Drop
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import MAX_FILE_RECORDS, SourceFile
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.store import ArtifactStore

pytestmark = pytest.mark.measured  # they cover edge cases of the corpus

_PROGRAM = "fn a() to int {\n    return 1\n}\n"
_HEADERS = {
    "object": '!!python/object/apply:os.system ["touch PWNED"]',
    "class": "!!python/name:os.system",
    "no-bool": "!!bool maybe",
    "no-digits": '!!int ""',
    "no-float": '!!float ""',
    "no-time": "!!timestamp soon",
    "huge": "0x" + "f" * 9000,
    "sexagesimal": "1:" * 5000 + "1.5",
    "endless": ".inf",
    "deep": "\n  " + "- " * 7000 + "x",
    "brackets": "[" * 150 + "]" * 150,
    "laughs": "&a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "set": "!!set {a, b}",
    "keys": "{? [a, b] : c}",
    "surrogate": r'"\ud800"',
    "binary": "!!binary aGVsbG8=",
}
_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "ok.vox").write_text(_PROGRAM)
    return tmp_path / "workspace"


def _extract(workspace: Path) -> dict[str, FileOutcome]:
    return {outcome.path: outcome for outcome in extract_workspace(workspace)}


def _format_page(header: str, body: str = f"```vox\n{_PROGRAM}```\n") -> str:
    return f"---\ntraining_eligible: true\n{header}\n---\n\n{body}"


@pytest.mark.threat("W5")
@pytest.mark.parametrize("key", ["x", "title", "status", "training_weight", "training_eligible"])
@pytest.mark.parametrize("value", _HEADERS.values(), ids=_HEADERS)
def test_no_header_stops_the_extraction_or_creates_an_object(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    monkeypatch.chdir(workspace)
    commented = "".join(f"// {line}\n" for line in f"{key}: {value}".split("\n"))
    (workspace / "bad.vox").write_text(f"// ---\n{commented}// ---\n{_PROGRAM}")
    (workspace / "bad.md").write_text(_format_page(f"{key}: {value}"))
    outcomes = _extract(workspace)

    assert set(outcomes) == {"ok.vox", "bad.vox", "bad.md"}
    assert len(outcomes["ok.vox"].lines) == 1
    assert not (workspace / "PWNED").exists()


@pytest.mark.threat("W5")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (_LAUGHS, "more than 20000 values"),
        ("a: &a [*a]\n", "more than 20000 values"),
        ("a: " + "[" * 100_000, "100 levels"),
        ("a: " + "x" * 300_000, "more than 262144"),
        ("a: 1\n" * 300_000, "larger than"),
        ('a: !!python/object/apply:os.system ["touch PWNED"]\n', "not YAML"),
        ("a: !!bool maybe\n", "not YAML"),
        ('negative_roots: ["a\\0b"]\n', "is not a path"),
        ("negative_roots: [loop]\n", "is not a path"),
        ("negative_roots: 0x" + "f" * 9000, "valid tuple"),
    ],
    ids=["laughs", "ring", "deep", "long", "large", "object", "bool", "nul", "loop", "huge"],
)
def test_rejects_a_hostile_file_of_roots_at_once(workspace: Path, content: str, problem: str) -> None:
    (workspace / "loop").symlink_to("loop")
    (workspace / ROOTS_FILE).write_text(content)
    start = time.process_time()

    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        _extract(workspace)
    assert time.process_time() - start < 2
    assert not Path("PWNED").exists()


@pytest.mark.threat("W2")
@pytest.mark.parametrize("roots", ["[/etc]", "[../../..]", "['~/..', '*']"])
def test_roots_cannot_leave_the_workspace(workspace: Path, roots: str) -> None:
    (workspace / ROOTS_FILE).write_text(f"negative_roots: {roots}\ngolden_roots: {roots}\ndoc_roots: {roots}\n")

    assert set(_extract(workspace)) == {"ok.vox"}


@pytest.mark.threat("W2")
def test_rejects_a_link_as_a_file_of_roots(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("password: [hunter2")
    (workspace / ROOTS_FILE).symlink_to(tmp_path / "secret.txt")

    with pytest.raises(ConfigurationError, match="a symbolic link") as refusal:
        _extract(workspace)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.threat("W4")
def test_names_that_are_not_text_are_counted(workspace: Path, tmp_path: Path) -> None:
    for suffix in (b".vox", b".md"):
        (workspace / os.fsdecode(b"\xff" + suffix)).write_text(_PROGRAM)
    corpus, _ = build_extracted_corpus(workspace, ArtifactStore(tmp_path / "store"))

    assert {name: [drop.reason for drop in outcome.drops] for name, outcome in _extract(workspace).items()} == {
        "ok.vox": [],
        r"\xff.vox": [DropReason.NOT_TEXT],
        r"\xff.md": [DropReason.NOT_TEXT],
    }
    assert corpus.manifest["num_records"] == 1


@pytest.mark.threat("W3")
def test_pipes_and_links_are_never_opened(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.vox").write_text("fn secret() to int {\n    return 2\n}\n")
    os.mkfifo(workspace / "pipe.vox")
    os.mkfifo(workspace / "pipe.md")
    (workspace / "self.vox").symlink_to("self.vox")
    (workspace / "out.vox").symlink_to(tmp_path / "outside.vox")
    (workspace / "up").symlink_to("..")
    found: list[object] = []
    work = threading.Thread(
        target=lambda: found.extend(
            (_extract(workspace), build_extracted_corpus(workspace, ArtifactStore(tmp_path / "store"))[0])
        ),
        daemon=True,
    )
    work.start()
    work.join(20)

    assert len(found) == 2, "a pipe blocks the extraction"
    outcomes = found[0]
    assert isinstance(outcomes, dict)
    dropped = {name: {drop.reason for drop in outcome.drops} for name, outcome in outcomes.items()}
    assert dropped.pop("ok.vox") == set()
    assert set(dropped) == {"pipe.vox", "pipe.md", "self.vox", "out.vox"}
    assert set.union(*dropped.values()) == {DropReason.LINK}
    assert [path.name for path in vox_files(workspace)] == ["ok.vox"]


@pytest.mark.threat("W4")
def test_walks_a_tree_deeper_than_the_longest_path(workspace: Path, tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(workspace)
        for _ in range(2_500):
            Path("a").mkdir()
            os.chdir("a")
        outcomes = _extract(workspace)
        corpus, _ = build_extracted_corpus(workspace, ArtifactStore(tmp_path / "store"))
    finally:
        for _ in range(2_500):
            os.chdir("..")
            Path("a").rmdir()
        os.chdir(here)

    (unread,) = (outcome for name, outcome in outcomes.items() if name != "ok.vox")
    assert unread.drops[0].reason is DropReason.UNREADABLE
    assert corpus.manifest["num_records"] == 1


@pytest.mark.slow
@pytest.mark.threat("W4")
def test_a_folder_of_many_files_needs_little_memory(workspace: Path) -> None:
    for number in range(3_000):
        (workspace / f"{number}.vox").write_text(_PROGRAM)
    tracemalloc.start()
    count = sum(1 for _ in extract_workspace(workspace))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 3_001
    assert peak < 20_000_000


@pytest.mark.threat("W1")
@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.vox", "a/../../outside.vox", "link.vox", "loop.vox"])
def test_an_include_cannot_leave_the_workspace(workspace: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside.vox").write_text(_PROGRAM)
    (workspace / "a").mkdir()
    (workspace / "link.vox").symlink_to(tmp_path / "outside.vox")
    (workspace / "loop.vox").symlink_to("loop.vox")

    with pytest.raises(IncludeError, match=r"outside the workspace|does not exist"):
        resolve_includes(f"{{{{#include {path}}}}}\n", workspace / "page.md", workspace, Allowance())


@pytest.mark.threat("W6")
def test_the_includes_of_a_page_are_bounded(workspace: Path) -> None:
    """Three hundred lines include a megabyte each, of which four are read."""
    (workspace / "big.vox").write_text("// " + "x" * 1_000_000 + "\n")
    page = SourceFile("page.md", _format_page("a: 1", "```vox\n" + "{{#include big.vox}}\n" * 300 + "```\n").encode())
    tracemalloc.start()
    found = extract_docs(page, workspace)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert isinstance(found, PageExtraction)
    (detail,) = [drop.detail for drop in found.drops if drop.reason is DropReason.BAD_INCLUDE]
    assert "more than 4194304 bytes" in detail
    assert peak < 40_000_000


def test_a_page_has_a_total_limit_of_includes(workspace: Path) -> None:
    (workspace / "a.vox").write_text(_PROGRAM)
    allowance = Allowance(2 * len(_PROGRAM))
    for _ in range(2):
        resolve_includes("{{#include a.vox}}\n", workspace / "page.md", workspace, allowance)

    with pytest.raises(IncludeError, match="the page includes more than"):
        resolve_includes("{{#include a.vox}}\n", workspace / "page.md", workspace, allowance)


@pytest.mark.threat("W6")
def test_copies_of_a_large_header_are_bounded() -> None:
    """Each declaration is a record with the header of its file: 170 kB would become 80 MB."""
    header = f'// ---\n// x: "{"y" * 16_000}"\n// ---\n'
    source = header + "".join(f"fn f{n}() to int {{\n    {n}\n}}\n" for n in range(4_000))
    records = extract_vox(SourceFile("a.vox", source.encode()))

    assert isinstance(records, tuple)
    assert 500 < len(records) < 600
    assert sum(len(record.model_dump_json()) for record in records) < 1.1 * MAX_FILE_RECORDS


@pytest.mark.parametrize(
    "slow",
    ["![" * 500_000, "[" * 1_000_000, "[a](" * 250_000, "*a_" * 300_000],
    ids=["pictures", "brackets", "links", "stars"],
)
def test_reads_a_page_made_to_be_slow_in_seconds(slow: str) -> None:
    page = SourceFile("page.md", _format_page("a: 1", f"{slow}\n\n```vox\n{_PROGRAM}```\n").encode())
    start = time.process_time()
    found = extract_docs(page, Path())

    assert isinstance(found, PageExtraction)
    assert [record.text for record in found.records] == [_PROGRAM]
    assert time.process_time() - start < 8


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_drops_a_page_of_too_many_lines_with_a_reason(end: str) -> None:
    page = SourceFile("page.md", _format_page("a: 1", "> " * 19 + f"a{end}" * 300_000).encode())
    start = time.process_time()
    found = extract_docs(page, Path())

    assert isinstance(found, Drop)
    assert (found.reason, found.detail) == (DropReason.TOO_LARGE, f"300006 lines, more than {MAX_PAGE_LINES}")
    assert time.process_time() - start < 1


@pytest.mark.threat("W6")
def test_a_page_with_a_large_header_counts_dropped_records() -> None:
    page = _format_page(f"x: {'y' * 16_000}", f"```vox\n{_PROGRAM}```\n\n" * 1_000)
    found = extract_docs(SourceFile("page.md", page.encode()), Path())

    assert isinstance(found, PageExtraction)
    assert 500 < len(found.records) < 600
    assert len(found.records) + len(found.drops) == 1_000
    assert {drop.reason for drop in found.drops} == {DropReason.TOO_LARGE}


@pytest.mark.threat("W8")
def test_a_prompt_of_blanks_is_read_quickly() -> None:
    """A megabyte of them after `@training_prompt:` took an hour."""
    start = time.process_time()

    assert training_prompt(f"// @training_prompt:{' ' * 1_000_000}\nfn a() {{ }}\n") is None
    assert time.process_time() - start < 2


@pytest.mark.threat("W9")
def test_reading_the_commit_of_a_repository_runs_none_of_its_programs(workspace: Path) -> None:
    program = workspace / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {workspace / 'PWNED'}\n")
    program.chmod(0o755)
    git = ("git", "-C", str(workspace), "-c", "user.name=t", "-c", "user.email=t@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
        subprocess.run([*git, *command], check=True)
    commit = _sign_commit(git)
    keys = (("core", "fsmonitor"), ("core", "sshCommand"), ("core", "pager"), ("pager", "log"), ("gpg", "program"))
    hostile = "".join(f"[{section}]\n\t{key} = {program}\n" for section, key in (*keys, ("alias", "log")))
    with (workspace / ".git" / "config").open("a") as config:
        config.write(f"{hostile}[log]\n\tshowSignature = true\n")

    assert find_newest_commit(workspace) == head_commit(workspace) == commit
    assert [origin.problem for origin in _list_sources(workspace).origins()] == [None]
    assert not (workspace / "PWNED").exists()
    subprocess.run([*git, "log", "-1"], check=True, capture_output=True)
    assert (workspace / "PWNED").exists(), "a plain `git log` does run it"


def _list_sources(workspace: Path) -> OwnSources:
    sources = OwnSources(workspace)
    assert any(reason is None for _, reason in sources.files(workspace, VOX_SUFFIXES, everything=True))
    return sources


def _sign_commit(git: tuple[str, ...]) -> str:
    """Replace the newest commit by one that claims to be signed, so that git would check its signature."""
    plain = subprocess.run([*git, "cat-file", "commit", "HEAD"], check=True, capture_output=True, text=True).stdout
    head, _, message = plain.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    made = subprocess.run(
        [*git, "hash-object", "-t", "commit", "-w", "--stdin"],
        input=f"{head}\n{signature}\n\n{message}",
        check=True,
        capture_output=True,
        text=True,
    )
    commit = made.stdout.strip()
    subprocess.run([*git, "update-ref", "HEAD", commit], check=True)
    return commit


@pytest.mark.parametrize("name", ["x.vox", "x.md"])
def test_lists_files_in_order_without_ignored_folders(workspace: Path, name: str) -> None:
    for folder in ("b", "a", "a/c", ".git", "target", "tagged"):
        (workspace / folder).mkdir()
        (workspace / folder / name).write_text(_PROGRAM)
    (workspace / "tagged" / "CACHEDIR.TAG").touch()
    found = [path.relative_to(workspace).as_posix() for path in files_below(workspace, (name[-3:],))]

    assert [path for path in found if path != "ok.vox"] == [f"a/{name}", f"a/c/{name}", f"b/{name}"]
