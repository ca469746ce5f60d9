"""Alerts about runs that ended."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time
from dagster_shared.error import SerializableErrorInfo
from pydantic import SecretStr

from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.orchestration.asset import read_reason
from mens_pipeline.orchestration.defs import alerts
from mens_pipeline.orchestration.defs.alerts import post_to_webhook
from mens_pipeline.orchestration.defs.promotion import PromotionConfig
from mens_pipeline.settings import load_settings


def _build_failing(error: Exception) -> dg.JobDefinition:
    @dg.op
    def step() -> None:
        raise error

    @dg.job
    def some_job() -> None:
        step()

    return some_job


def _read_alerts(
    instance: dg.DagsterInstance,
    result: dg.ExecuteInProcessResult,
    capfd: pytest.CaptureFixture[str],
    run: dg.DagsterRun | None = None,
) -> str:
    """Return the alert about a run that ended; `run` replaces the run of the result."""
    sensor = "run_without_promotion" if result.success else "run_failed"
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor,
        dagster_instance=instance,
        dagster_run=run or result.dagster_run,
        dagster_event=result.get_run_success_event() if result.success else result.get_run_failure_event(),
    )
    capfd.readouterr()
    given = context if result.success else context.for_run_failure()
    outcome = defs().get_repository_def().get_sensor_def(sensor)(given)
    assert outcome is None or isinstance(outcome, dg.SkipReason)
    return capfd.readouterr().err + (outcome.skip_message or "" if outcome is not None else "")


class _Chat(BaseHTTPRequestHandler):
    details: ClassVar[list[dict[str, Any]]] = []
    status: ClassVar[int] = 200

    def do_POST(self) -> None:
        self.details.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Chat]]:
    monkeypatch.setattr(_Chat, "details", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Chat) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("MENS_ALERT_URL", f"http://127.0.0.1:{server.server_port}/hook/secret")
        yield _Chat
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RefusedError("corpus: too small. Write more."), "step: corpus: too small. Write more."),
        (dg.Failure("There is no adapter.\nTrain one."), "step: There is no adapter. Train one."),
        (KeyError("x"), "step: KeyError: 'x'"),
    ],
    ids=["a refusal", "a failure", "a defect"],
)
def test_a_failed_run_is_reported_in_one_line(
    chat: type[_Chat], error: Exception, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = _build_failing(error).execute_in_process(instance=instance, raise_on_error=False)
        said = _read_alerts(instance, result, capfd)

    (line,) = [line for line in said.splitlines() if "failed" in line]
    (details,) = chat.details
    assert line.endswith(f"{reason} (run {result.run_id} of some_job failed)")
    assert details == {
        "text": f"{reason} (run {result.run_id} of some_job failed)",
        "event": "run_failed",
        "run": result.run_id,
        "job": "some_job",
    }


def test_a_run_that_failed_outside_of_a_step_has_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = _build_failing(KeyError("x")).execute_in_process(instance=instance, raise_on_error=False)
        run = instance.create_run_for_job(_build_failing(KeyError("x")))

        assert "Execution of run" in _read_alerts(instance, result, capfd, run)


def _finish_run(
    promotes: bool,  # noqa: FBT001 - a column
    selection: list[str] | None,
    capfd: pytest.CaptureFixture[str],
    config: dict[str, Any] | None = None,
) -> str:
    @dg.asset
    def benchmark_gate() -> None:
        pass

    @dg.asset(deps=[benchmark_gate], output_required=False)
    def promoted_adapter(config: PromotionConfig) -> Iterator[dg.MaterializeResult[Any]]:
        if promotes and config.promote:
            yield dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [benchmark_gate, promoted_adapter],
            instance=instance,
            selection=selection,
            run_config={"ops": {"promoted_adapter": {"config": config}}} if config is not None else None,
        )
        return _read_alerts(instance, result, capfd)


@pytest.mark.parametrize(
    ("promotes", "selection", "words"),
    [
        (True, None, "promoted its adapter, or confirmed the one in use"),
        (False, None, "nothing was promoted (run "),
        (False, ["benchmark_gate"], "does not include promoted_adapter"),
    ],
    ids=["promoted", "refused", "not selected"],
)
def test_a_green_run_without_a_promotion_is_reported(
    promotes: bool,  # noqa: FBT001 - a column
    selection: list[str] | None,
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert words in _finish_run(promotes, selection, capfd)


def test_a_run_without_promotion_by_choice_is_not_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert "only evaluates and promotes nothing" in _finish_run(True, None, capfd, {"promote": False})  # noqa: FBT003


_REFUSAL = "parse rate 10.0 % measured, 70.0 % required: not promoted; no adapter is in use"


def test_a_refusal_reaches_the_webhook_with_its_reasons(chat: type[_Chat], capfd: pytest.CaptureFixture[str]) -> None:
    check = dg.AssetCheckSpec("not_refused", asset="promoted_adapter")

    @dg.asset(output_required=False, check_specs=[check])
    def promoted_adapter() -> Iterator[dg.AssetCheckResult]:
        yield dg.AssetCheckResult(passed=False, description=_REFUSAL)

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([promoted_adapter], instance=instance, tags={"mens/verdict": "failed"})
        said = _read_alerts(instance, result, capfd)

    (details,) = chat.details
    assert f"{_REFUSAL} (run " in said
    assert details["text"] == f"{_REFUSAL} (run {result.run_id} of {result.dagster_run.job_name})"
    assert (details["event"], details["run"], details["verdict"]) == ("run_refused", result.run_id, "failed")


@pytest.mark.parametrize(
    ("status", "problem"), [(500, "returned HTTP 500"), (0, "cannot be reached (ConnectionRefusedError)")]
)
def test_an_alert_that_fails_names_no_address(
    chat: type[_Chat], monkeypatch: pytest.MonkeyPatch, status: int, problem: str
) -> None:
    monkeypatch.setattr(chat, "status", status)
    url = SecretStr("http://127.0.0.1:9/secret") if not status else load_settings().alert_url
    found = post_to_webhook(url, "run_failed", "text", {})

    assert found == f"MENS_ALERT_URL {problem}"


def test_nothing_is_sent_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert post_to_webhook(None, "run_failed", "text", {}) is None
    monkeypatch.setenv("MENS_ALERT_URL", "file:///etc/passwd")
    with pytest.raises(ConfigurationError, match=r"MENS_ALERT_URL: .*not an http or https address"):
        load_settings()


@pytest.mark.parametrize(
    ("now", "promoted", "said", "is_reported"),
    [
        ("2026-01-02T07:59", "2026-01-01T05:00", "promoted or confirmed on 2026-01-01 at 05:00; next at", False),
        ("2026-01-02T08:00", "2026-01-02T04:30", "promoted or confirmed on 2026-01-02 at 04:30; next at", False),
        ("2026-01-02T08:00", "2026-01-01T05:00", "last promoted or confirmed on 2026-01-01 at 05:00 UTC", True),
        ("2026-01-02T08:00", None, "no adapter has been promoted yet", False),
    ],
)
def test_a_stale_adapter_is_reported_once_a_day(  # noqa: PLR0913, PLR0917 - fixtures and columns
    chat: type[_Chat],
    monkeypatch: pytest.MonkeyPatch,
    now: str,
    promoted: str | None,
    said: str,
    is_reported: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(alerts, "_now", lambda: datetime.fromisoformat(now).replace(tzinfo=UTC))
    sensor = defs().get_repository_def().get_sensor_def("adapter_stale")
    with dg.DagsterInstance.ephemeral() as instance:
        if promoted is not None:
            with freeze_time(datetime.fromisoformat(promoted).replace(tzinfo=UTC)):
                instance.report_runless_asset_event(dg.AssetMaterialization("promoted_adapter"))
        cursor = None
        found = []
        for _ in range(2):
            with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
                tick = sensor.evaluate_tick(context)
            cursor = tick.cursor
            found.append(tick.skip_message or "")

    assert said in found[0]
    assert [one["event"] for one in chat.details] == ["adapter_stale"] * is_reported
    assert not is_reported or found[1] == "reported at 08:00; next at nightly.alert (0 8 * * *, UTC)"


def test_a_reason_is_one_line() -> None:
    def error(message: str, cause: SerializableErrorInfo | None = None) -> SerializableErrorInfo:
        return SerializableErrorInfo(message, [], None, cause)

    ours = error("mens_pipeline.errors.RefusedError: No.\n  Try again.\n")

    assert read_reason(ours) == "No. Try again."
    assert (
        read_reason(error("dagster._core.errors.DagsterExecutionStepExecutionError: Error in step\n", ours))
        == "No. Try again."
    )
    assert read_reason(error("KeyError: 'x'")) == "KeyError: 'x'"
