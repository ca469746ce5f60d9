"""An adapter from training to serving: promoted, merged, compared, and used by OpenAI's client."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.delivery.merge import report_in
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.serving.running import Running, running

pytestmark = pytest.mark.slow

_LIMITS = ServerLimits(2, 20_000, 60.0, 400)
_REQUESTS = ("Write a Vox function `f9`.", "Write a table `Book` with a title.")


def _request_completions(server: Running) -> list[str]:
    with server.openai() as client:
        return [
            client.chat.completions.create(model="mens", max_tokens=24, messages=[{"role": "user", "content": request}])
            .choices[0]
            .message.content
            or ""
            for request in _REQUESTS
        ]


@pytest.mark.seed_row(23)
@pytest.mark.usefixtures("jobs_here")
def test_a_champion_writes_the_same_completions_after_merging(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, store = promoted_run(trained, tmp_path)
    monkeypatch.setenv("MENS_STORE_ROOT", str(store.root))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, ["merge", "-o", str(tmp_path / "model"), "--device", "cpu"])
    with running(run, _LIMITS) as server:
        before = _request_completions(server)
    with running(tmp_path / "model", _LIMITS) as server:
        after = _request_completions(server)
        details = server.served.system_prompt

    assert result.exit_code == 0, result.stderr
    assert report_in(tmp_path / "model").passed
    assert after == before
    assert all(after)
    assert details == Adapter.open(run).manifest.system_prompt
