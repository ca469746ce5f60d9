"""The history of a workspace becomes holes; changes without one are counted with a reason."""

import os
from pathlib import Path

import pytest

from mens_pipeline.corpus.infill import history
from mens_pipeline.corpus.infill.history import History, read_history
from mens_pipeline.corpus.schema.reasons import ReplayDrop
from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.language import Mode
from mens_pipeline_tests.corpus.infill.repository import BEGIN, DAY, Repository, program

_LONG = "".join(f"    let x{number} = {number}\n" for number in range(9))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A program of two functions, committed on the first of May."""
    return Repository(tmp_path / "workspace")


def _read(repository: Repository, number: int = 100) -> History:
    return read_history(repository.root, repository.first, number)


def _reasons(repository: Repository) -> dict[str, int]:
    return {str(reason): number for reason, number in _read(repository).dropped.items() if number}


def test_added_lines_are_a_hole_in_the_program_before(repository: Repository) -> None:
    first, second = "    let a = 1\n    let b = 2\n", "    return 7\n"
    repository.commit("a.vox", program("f", first) + program("g", second), days=3)

    found = _read(repository)

    (one, other) = found.holes
    before = program("f") + program("g")
    assert (one.prefix + one.suffix, one.middle) == (program("f", "    \n") + program("g"), "let a = 1\n    let b = 2")
    assert one.prefix.endswith("int {\n    ")
    assert other.prefix + other.suffix == before.replace("    return 1\n}\n", "    \n}\n").replace(
        program("f").replace("    return 1\n", "    \n"), program("f")
    )
    assert other.middle == "return 7"
    assert (one.path, one.mode, one.time) == ("a.vox", Mode.SOURCE, BEGIN + 3 * DAY)
    assert (found.begin, found.by_week, found.seen, found.kept) == (BEGIN, {1: 2}, 2, 2)
    assert len({one.digest, other.digest}) == 2


def test_lines_are_split_as_in_git(repository: Repository) -> None:
    repository.commit("a.vox", program("f").replace("\n", "\r\n") + '// "\f"\r\nfn h() to int { return 3 }', days=1)
    repository.commit("a.vox", program("f").replace("\n", "\r\n") + '// "\f"\r\nfn h() to int { return 4 }', days=15)

    hole = read_history(repository.root, "2026-05-10", 9).holes[0]

    assert (hole.middle, hole.suffix) == ("fn h() to int { return 4 }", "")
    assert hole.prefix.endswith('}\n// "\f"\n')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (program("f", _LONG + "    return 1\n") + program("g"), "too_long"),
        (program("f"), "adds_nothing"),
        (program("f", "        return   1\n") + program("g"), "white_space"),
        (program("f", "    // why\n    return 1\n") + program("g"), "no_code"),
        ("fn first() to int { return 0 }\n" + program("f") + program("g"), "no_code"),
        (program("f", "    return (\n") + program("g"), "rejected"),
        ("//\r\n\r\n// @generated, do not edit\n" + program("f", "    return 2\n") + program("g"), "generated"),
        ("\udcff", "unreadable"),
        ("// " + "x" * 300_000 + "\n" + program("f") + program("g"), "unreadable"),
    ],
)
def test_changes_that_nobody_completes_are_left_out(repository: Repository, text: str, reason: str) -> None:
    repository.commit("a.vox", text)

    assert _reasons(repository) == {reason: 1}


def test_files_that_are_not_edited_by_hand_are_left_out(repository: Repository) -> None:
    many = "".join(program(f"f{number}") for number in range(120))
    repository.commit("vendor/b.vox", program("b"))
    (repository.root / "link.vox").symlink_to("a.vox")
    repository.commit("m.vox", many)
    repository.commit("vendor/b.vox", program("b", "    return 2\n"))
    (repository.root / "link.vox").unlink()
    (repository.root / "link.vox").symlink_to("m.vox")
    repository.commit("m.vox", many.replace("return 1", "return 2"))
    (repository.root / "m.vox").chmod(0o755)
    (repository.root / "a.vox").rename(repository.root / "z.vox")
    repository.commit("page.md", "# Page")

    expected = {"new_file": 3, "generated": 1, "unreadable": 1, "mass_change": 1, "renamed": 1, "adds_nothing": 1}
    assert _reasons(repository) == expected


def test_merges_and_mass_changes_are_left_out(repository: Repository) -> None:
    for number in range(21):
        repository.write(f"m{number}.vox", program("f"))
    repository.commit("page.md", "# Page")
    for number in range(21):
        repository.write(f"m{number}.vox", program("f", "    return 2\n"))
    repository.commit("page.md", "# Other page")
    repository.git("checkout", "-q", "-b", "side", "HEAD")
    repository.commit("a.vox", program("f", "    return 3\n") + program("g"))
    repository.git("checkout", "-q", "-")
    repository.commit("a.vox", program("f", "    return 4\n") + program("g"))
    repository.git("merge", "-q", "side", check=False)
    repository.commit("a.vox", program("f", "    return 5\n") + program("g"))

    found = _read(repository)

    assert {str(reason): number for reason, number in found.dropped.items() if number} == {
        "merge": 1,
        "mass_change": 1,
        "new_file": 21,
    }
    assert sorted(hole.middle for hole in found.holes) == ["return 3", "return 4"]


def test_the_same_lines_in_two_branches_count_once(repository: Repository) -> None:
    repository.commit("a.vox", program("f", "    return 3\n") + program("g"), days=1)
    repository.commit("b.vox", program("b"), days=1)
    repository.git("checkout", "-q", "-b", "side", repository.first)
    repository.commit("a.vox", program("f", "    return 3\n") + program("g"), days=2)
    repository.commit("c.vox", program("c"), days=2)
    repository.git("merge", "-q", "--no-edit", "-")

    found = _read(repository)

    assert [(hole.middle, hole.time) for hole in found.holes] == [("return 3", BEGIN + DAY)]
    assert found.dropped[ReplayDrop.DUPLICATE] == 1


def test_a_sample_is_drawn_from_many_holes(repository: Repository) -> None:
    for number in range(2, 12):
        repository.commit("a.vox", program("f", f"    return {number}\n") + program("g"), days=number)

    first, second, some = (_read(repository, number) for number in (4, 4, 100))
    later = read_history(repository.root, "2026-05-09T00:00:00+00:00", 100)

    assert first == second
    assert (first.kept, first.dropped[ReplayDrop.SAMPLED_OUT], some.kept, later.kept) == (4, 6, 10, 4)
    assert [hole.time for hole in first.holes] == sorted(hole.time for hole in first.holes)
    assert set(first.holes) < set(some.holes)
    assert some.by_week == {1: 5, 2: 5}


def test_commits_after_a_date_count_in_any_order(repository: Repository) -> None:
    for number, days in ((2, 10), (3, 2), (4, 11)):
        repository.commit("a.vox", program("f", f"    return {number}\n") + program("g"), days=days)
    repository.commit("a.vox", program("f") + program("g"), days=3)

    found = read_history(repository.root, "2026-05-09", 9)

    assert [hole.middle for hole in found.holes] == ["return 2", "return 4"]


@pytest.mark.parametrize("name", ["é.vox", 'a "name"\\.vox', "\udcff.vox"])
def test_quoted_names_of_files_are_decoded(repository: Repository, name: str) -> None:
    """Git quotes names with characters other than ASCII."""
    repository.commit(name, program("f"))
    repository.commit(name, program("f", "    return 2\n"))

    (hole,) = _read(repository).holes

    assert hole.path == name.replace("\udcff", r"\xff")


def test_the_git_settings_of_the_user_have_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[commit]\ngpgsign = true\n[gpg]\nprogram = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))

    assert Repository(tmp_path / "workspace").first


def test_a_bare_repository_and_a_subfolder_are_accepted(repository: Repository, tmp_path: Path) -> None:
    repository.commit("below/b.vox", program("b"))
    repository.commit("below/b.vox", program("b", "    return 2\n"))
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))

    found = read_history(repository.root / "below", repository.first, 9)

    assert [hole.path for hole in found.holes] == ["b.vox"]
    assert [hole.path for hole in read_history(tmp_path / "bare", repository.first, 9).holes] == ["below/b.vox"]


def test_a_folder_without_history_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.commit("a.vox", program("f"))
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.root}", str(tmp_path / "shallow"))
    (tmp_path / "plain").mkdir()

    with pytest.raises(SourceNotFoundError, match=r"nowhere: no such folder\. Name a Vox workspace"):
        read_history(tmp_path / "nowhere", "HEAD", 9)
    with pytest.raises(RefusedError, match=r"plain: cannot read its history: fatal: not a git .* Name a folder"):
        read_history(tmp_path / "plain", "HEAD", 9)
    with pytest.raises(RefusedError, match=r"a shallow clone, .* Run `git fetch --unshallow`"):
        read_history(tmp_path / "shallow", "HEAD", 9)
    with pytest.raises(SourceNotFoundError, match=r"\0: neither a commit of .* Name a commit, or a date such as"):
        read_history(repository.root, "\0", 9)
    with pytest.raises(SourceNotFoundError, match=r"--all: neither a commit of .* Name a commit, or a date such as"):
        read_history(repository.root, "--all", 9)


def test_an_error_distinguishes_a_missing_git_from_a_refusal(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        with pytest.raises(RefusedError, match=r"cannot read its history: git is not installed\. Install git\."):
            _read(repository)
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        with pytest.raises(RefusedError, match=r"cannot read its history: fatal: .*dubious ownership.*safe\.directory"):
            _read(repository)
    (repository.root / ".git" / "HEAD").write_text("1" * 40 + "\n")
    with pytest.raises(RefusedError, match=r"git rev-list failed: fatal: .*HEAD\."):
        _read(repository)


def test_a_log_that_never_ends_is_refused(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe in place of the attributes would block git for ever."""
    repository.commit("a.vox", program("f"))
    os.mkfifo(repository.root / ".gitattributes")
    monkeypatch.setattr(history, "_MOST_SECONDS", 1.0)

    with pytest.raises(RefusedError, match=r"took over 1 seconds\. Name a later commit"):
        _read(repository)


@pytest.mark.parametrize(
    ("word", "instead", "message"),
    [
        ("log", r"printf '\001abc 1\n:100644'; kill -9 $$", r"git log failed, or took over 1 seconds\. Name a later"),
        ("rev-list", "exit 128", "git rev-list failed"),
        ("cat-file", "exec sleep 60", r"git cat-file failed, or took over 1 seconds\. Name a later commit"),
    ],
)
def test_a_command_of_git_that_fails_is_refused(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, word: str, instead: str, message: str
) -> None:
    """Otherwise part of the history would count as the whole, and omitted merges would not be reported."""
    repository.commit("a.vox", program("f", "    return 2\n") + program("g"))
    program_of_git = repository.root / "git"
    program_of_git.write_text(f'#!/bin/sh\nif [ "$1" = {word} ]; then {instead}; else exec git "$@"; fi\n')
    program_of_git.chmod(0o755)
    monkeypatch.setattr(history, "GIT", (str(program_of_git),))
    monkeypatch.setattr(history, "_MOST_SECONDS", 1.0)

    with pytest.raises(RefusedError, match=message):
        _read(repository)


def test_a_clone_without_files_is_refused_with_advice(repository: Repository, tmp_path: Path) -> None:
    repository.commit("a.vox", program("f", "    return 2\n") + program("g"))
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--bare", "--filter=blob:none", f"file://{repository.root}", str(clone))

    with pytest.raises(RefusedError, match=r"git log failed: .* run `git fetch --refetch --no-filter` in it"):
        read_history(clone, repository.first, 9)

    repository.git("-C", str(clone), "fetch", "-q", "--refetch", "--no-filter")
    assert read_history(clone, repository.first, 9).kept == 1


def test_a_program_that_is_not_in_the_clone_is_unreadable(repository: Repository) -> None:
    repository.commit("a.vox", program("f", "    return 2\n") + program("g"))
    repository.commit("a.vox", program("f", "    return 3\n") + program("g"))
    with history._run(repository.root, history._LOG) as git, history._watch(git) as lines:  # noqa: SLF001 - git refuses earlier
        commits = list(history._commits(lines))  # noqa: SLF001 - likewise
    blob = repository.git("rev-parse", "HEAD:a.vox")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = History(begin=0)

    changed = [(commit, file) for commit in commits for file in commit.files if file.status == "M"]
    holes = list(history._read_holes(repository.root, changed, found))  # noqa: SLF001 - likewise

    assert [hole.middle for hole in holes] == ["return 2"]
    assert found.dropped == {ReplayDrop.UNREADABLE: 1}
