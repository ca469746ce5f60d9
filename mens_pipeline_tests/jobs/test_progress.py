"""Following a job while it runs."""

import pytest

from mens_pipeline.jobs.progress import poll_in_thread


def test_a_look_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A database that starts again ends neither the following nor the job, and stands in the log."""
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise OSError("the database starts again")

    with poll_in_thread(look, 0.01):
        while len(looks) < 3:
            pass

    assert "the database starts again" in caplog.text
