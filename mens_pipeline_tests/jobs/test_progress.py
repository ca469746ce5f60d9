"""Following a job while it runs."""

import pytest

from mens_pipeline.jobs import progress
from mens_pipeline.jobs.progress import log_wait, poll_in_thread


def test_a_failed_poll_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """A database that restarts ends neither the polling nor the job, and is in the log."""
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise OSError("the database starts again")

    with poll_in_thread(look, 0.01):
        while len(looks) < 3:
            pass

    assert "the database starts again" in caplog.text


def test_a_long_wait_is_logged_and_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[str]()
    with log_wait("loading", lines.append):
        pass
    assert lines == []

    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.01)
    with log_wait("loading", lines.append):
        while len(lines) < 2:
            pass
    assert set(lines) == {"loading: 0 s so far"}
