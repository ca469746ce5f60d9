"""An executor that prints the tags of each step before it starts it, and a run by the executor of the settings.

`python -m mens_pipeline_tests.orchestration.routing` prints them.
"""

import sys
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor
from dagster._core.executor.init import InitExecutorContext

from mens_pipeline.definitions import defs


class _Telling(InProcessExecutor):
    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[Any]:
        for step in execution_plan.get_all_steps_in_topo_order():
            sys.stdout.write(f"{step.key} {dict(step.tags).get('mens/device')}\n")
        return super().execute(plan_context, execution_plan)


@dg.executor(name="telling")
def telling(_context: InitExecutorContext) -> InProcessExecutor:
    """Start steps in this process, and print their tags."""
    return _Telling(RetryMode.DISABLED)


def whole_graph() -> dg.JobDefinition:
    return defs().resolve_job_def("whole_graph")


def main() -> None:
    """Run two of its assets, which fail without a train set and a base."""
    selection = [dg.AssetKey("qlora_adapter"), dg.AssetKey("eval_results")]
    with dg.DagsterInstance.ephemeral() as instance:
        dg.execute_job(dg.reconstructable(whole_graph), instance, asset_selection=selection)
    sys.stdout.write(f"{sorted({job.executor_def.name for job in defs().resolve_all_job_defs()})}\n")


if __name__ == "__main__":
    main()
