"""Processes on one machine that share a job, one per device; they start, stop and end together.

They run under torch's launcher, like `python -m torch.distributed.run --standalone`: it forwards SIGTERM to all of
them, and ends them all when one fails. Each holds the whole base model. Training divides the micro-batches of every
optimizer step and sums their gradients, so a step equals one on a single process. Generation divides its requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from signal import SIGTERM
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import ExitCode

ON_RAY: Final = "MENS_TRAINS_ON_RAY"
"""Set in processes that Ray starts."""

_LAUNCHERS: Final = frozenset(("TORCHELASTIC_RUN_ID", ON_RAY))
"""Variables that mark a valid `RANK`."""

_GRACE_SECONDS: Final = 100
"""Time to write a checkpoint after SIGTERM; shorter than the parent process waits."""

_LONGEST: Final = timedelta(days=7)
"""Timeout of a wait for other processes; if one fails, the launcher ends the others at once."""

Item = TypeVar("Item")


def start_ranks(command: Sequence[str], number: int) -> ExitCode:
    """Run `number` copies of a command, and return the exit code of the job; raise a `RefusedError` if one dies."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    options = ["--standalone", "--local-addr=localhost", f"--nproc-per-node={number}"]
    options.append(f"--shutdown-timeout={_GRACE_SECONDS}")
    with TemporaryDirectory(prefix="mens-agent-") as logs:
        try:
            run(parse_args([*options, f"--log-dir={logs}", "--no-python", *command]))
        except SignalException:
            return ExitCode.INTERRUPTED
        except ChildFailedError as error:
            codes = {failure.exitcode for failure in error.failures.values()}
            for rank, failure in error.failures.items():
                # When one process fails, torch ends the others with SIGTERM, which is not the cause.
                if failure.exitcode < 0 and (failure.exitcode != -SIGTERM or max(codes) <= 0):
                    found = f"process {rank} of {number} was ended by {failure.signal_name()}; the others were stopped"
                    advice = "Check whether memory ran out, and run the same command again to resume."
                    raise RefusedError(f"{found}. {advice}") from error
            return next((code for code in (ExitCode.REFUSED, ExitCode.INTERRUPTED) if code in codes), ExitCode.CRASHED)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Team:
    """Ranks of this process in its job and on this machine, from 0, and the number of processes."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the outputs."""
        return self.rank == 0

    def sum_over_all(self, values: Sequence[float], device: str) -> list[float]:
        """Return elementwise sums over all processes, once all of them have called."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as processes

        shared = torch.tensor(values, dtype=torch.float64, device=device)
        processes.all_reduce(shared)
        sums: list[float] = shared.tolist()
        return sums

    def meet(self) -> None:
        """Connect the processes of a generation; call this before `collect`."""
        if self.size > 1:
            import torch.distributed as processes

            processes.init_process_group("gloo", timeout=_LONGEST)

    def collect(self, own: Item) -> list[Item]:
        """Gather the values of all processes by rank, once all have called; only the first process gets them."""
        if self.size == 1:
            return [own]
        import torch.distributed as processes

        every: list[Item] = [own] * self.size
        processes.gather_object(own, every if self.is_first else None)
        return every if self.is_first else []

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.size > 1:
            import torch.distributed as processes

            processes.barrier()


ALONE: Final = Team()
"""A single process."""


def own_team(environment: Mapping[str, str]) -> Team:
    """Return the team that torch's launcher or Ray assigned to this process; `ALONE` without a launcher."""
    if _LAUNCHERS.isdisjoint(environment):
        return ALONE
    return Team(*(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
