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

_MAKING = (
    *("extracted_corpus", "synthetic_corpus", "validated_pairs", "heldout_split", "mixed_train_set"),
    *("base_model", "qlora_adapter", "eval_results", "benchmark_gate"),
)


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


@pytest.mark.parametrize("name", _MAKING)
def test_every_asset_refuses_plainly(name: str) -> None:
    """Whatever of ours it raises."""
    graph: Any = defs().resolve_assets_def(name)

    assert hasattr(graph.op.compute_fn.decorated_fn, "__wrapped__")


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


def test_what_a_process_prints_is_passed_on_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From where it was, and nothing of it steers a terminal."""
    log = tmp_path / "child.log"
    assert pipes._pass_on(log, 0) == 0  # noqa: SLF001 - what is tested
    log.write_bytes(b"one\n")
    said = pipes._pass_on(log, 0)  # noqa: SLF001 - likewise
    log.write_bytes(b"one\n\x1b[2J two\n")
    assert pipes._pass_on(log, said) == 13  # noqa: SLF001 - likewise

    assert capsys.readouterr().err == "one\n⟨1B⟩[2J two\n"
