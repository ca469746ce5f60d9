"""Several processes on one machine that share a job, one per device; they start, stop and end together.

They start like `python -m torch.distributed.run --standalone`, which passes SIGTERM on to all of them, and ends all
when one fails. Each has the whole base in memory. A training divides the micro-batches of every optimizer step and sums
their gradients, so the step equals that of a single process. A generation divides its requests.
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
"""Time to write a checkpoint; less than the parent process waits."""

_LONGEST: Final = timedelta(days=7)
"""Time that a process waits for another; if one fails, the launcher ends the others at once."""

Item = TypeVar("Item")


def start_ranks(command: Sequence[str], number: int) -> ExitCode:
    """Run a command once per device, until all have ended; refuse (`RefusedError`) if one was killed."""
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
                # If one fails, torch ends the others by SIGTERM, which hides the cause.
                if failure.exitcode < 0 and (failure.exitcode != -SIGTERM or max(codes) <= 0):
                    found = f"process {rank} of {number} was ended by {failure.signal_name()}, and the others with it"
                    advice = "Check whether memory ran out, and run the same command again: it resumes."
                    raise RefusedError(f"{found}. {advice}") from error
            return next((code for code in (ExitCode.REFUSED, ExitCode.INTERRUPTED) if code in codes), ExitCode.CRASHED)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Team:
    """The rank of this process in its job and on this machine, each from 0."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the outputs."""
        return self.rank == 0

    def sum_over_all(self, values: Sequence[float], device: str) -> list[float]:
        """Sum figures over all processes; each gets the sums once all have called."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as processes

        shared = torch.tensor(values, dtype=torch.float64, device=device)
        processes.all_reduce(shared)
        sums: list[float] = shared.tolist()
        return sums

    def meet(self) -> None:
        """Connect the processes of a generation, before they `collect`."""
        if self.size > 1:
            import torch.distributed as processes

            processes.init_process_group("gloo", timeout=_LONGEST)

    def collect(self, own: Item) -> list[Item]:
        """Return the values of all processes by rank, once all have called; only the first process gets them."""
        if self.size == 1:
            return [own]
        import torch.distributed as processes

        every: list[Item] = [own] * self.size
        processes.gather_object(own, every if self.is_first else None)
        return every if self.is_first else []

    def wait(self) -> None:
        """Wait for every process to get here."""
        if self.size > 1:
            import torch.distributed as processes

            processes.barrier()


ALONE: Final = Team()
"""A single process."""


def own_team(environment: Mapping[str, str]) -> Team:
    """Return the team of this process, as torch's launcher or Ray set it; alone without one."""
    if _LAUNCHERS.isdisjoint(environment):
        return ALONE
    return Team(*(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
