"""A small workspace with a git history."""

import os
import subprocess
from pathlib import Path
from typing import Final

from mens_pipeline.jobs.environment import own_environment

BEGIN: Final = 1_777_593_600
"""The first of May 2026, UTC, in seconds since 1970."""
DAY: Final = 86_400


def program(name: str, body: str = "    return 1\n") -> str:
    """Return the source of a function."""
    return f"fn {name}() to int {{\n{body}}}\n"


class Repository:
    """A checkout with a program of two functions, committed at `BEGIN`.

    Attributes:
        root: Its folder.
        first: The first commit.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q")
        self.commit("a.vox", program("f") + program("g"))
        self.first = self.git("rev-parse", "HEAD")

    def git(self, *words: str, days: int = 0, check: bool = True) -> str:
        """Run git with dates `days` after the beginning; with `check` it must succeed."""
        date = f"{BEGIN + days * DAY} +0000"
        command = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false", *words)
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        environment = {name: value for name, value in own_environment().items() if not name.startswith("GIT_")}
        environment |= {**dates, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=check)
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file, lone surrogates as bytes."""
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_bytes(text.encode("utf-8", "surrogateescape"))

    def commit(self, path: str, text: str, *, days: int = 0) -> None:
        """Write a file, and commit all that has changed."""
        self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x", days=days)
