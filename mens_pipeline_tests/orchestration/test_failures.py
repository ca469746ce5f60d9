"""What a person reads of a step that failed, and of one that goes on."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.errors import RefusedError
from mens_pipeline.orchestration import pipes
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.trainer import _Watcher


def test_a_refusal_is_in_the_first_line() -> None:
    """A failure with the sentence, not a defect with a stack around it; a defect stays one."""

    @dg.asset
    @plainly
    def refusing() -> None:
        raise RefusedError("No. Try again.")

    @dg.asset
    @plainly
    def broken() -> None:
        raise KeyError("x")

    result = dg.materialize([refusing, broken], raise_on_error=False)
    errors = {event.step_key: event.step_failure_data for event in result.get_step_failure_events()}

    assert str(errors["refusing"].error_display_string).startswith("dagster._core.definitions.events.Failure: No. Try")
    assert errors["refusing"].user_failure_data is not None
    assert errors["broken"].user_failure_data is None


def test_every_asset_refuses_plainly() -> None:
    """Each asset turns our errors into `dg.Failure`; generators have a test of their own."""
    made: dict[str, Any] = {
        key.to_user_string(): defs().resolve_assets_def(key)
        for key in defs().resolve_asset_graph().get_all_asset_keys()
    }
    bare = [name for name, asset in made.items() if not hasattr(asset.op.compute_fn.decorated_fn, "__wrapped__")]

    assert bare == ["promoted_adapter"]


def test_training_that_goes_on_says_from_where() -> None:
    """In the log of the run."""

    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        for checkpoint in (None, "checkpoint-40"):
            payload = {"resumed_from": checkpoint, "planned_steps": 300}
            _Watcher(context, 0.0, lambda _event: None).watch([{"event": "train_start", "payload": payload}])

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([adapter], instance=instance)
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]

    assert [line for line in said if "resumed" in line] == ["training resumed at step 40 of 300"]


def test_progress_has_rounded_numbers() -> None:
    """On the page of the adapter while it trains."""

    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        step = {"step": 3, "max_steps": 9, "eta_seconds": 60.0}
        step |= {"loss": 2 / 3, "grad_norm": 1 / 3, "tokens_per_second": 1000 / 7}
        _Watcher(context, 0.0, lambda _event: None).watch([{"event": "step", "payload": step}])

    result = dg.materialize([adapter])
    (event,) = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    seen = event.asset_observation_data.asset_observation.metadata

    assert {name: value.value for name, value in seen.items()} == {
        "train/step": 3,
        "train/loss": 0.6667,
        "train/grad_norm": 0.3333,
        "train/tokens_per_second": 142.9,
    }


def test_what_a_process_prints_is_passed_on_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From where it was, and nothing of it steers a terminal."""
    log = tmp_path / "child.log"
    assert pipes._pass_on(log, 0) == 0  # noqa: SLF001 - what is tested
    log.write_bytes(b"one\n")
    said = pipes._pass_on(log, 0)  # noqa: SLF001 - likewise
    log.write_bytes(b"one\n\x1b[2J two\n")
    assert pipes._pass_on(log, said) == 13  # noqa: SLF001 - likewise

    assert capsys.readouterr().err == "one\n⟨1B⟩[2J two\n"
