"""Several processes of one machine that do a job together, one a device: started, stopped and ended as one.

They are started as `python -m torch.distributed.run --standalone` does, which passes SIGTERM on to all of them, and
ends all when one fails. Each holds the whole base. A training divides the micro-batches of every optimizer step among
them and sums their gradients: the step is the one that a single process would take. A generation divides its requests.
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
"""Set in the processes that Ray starts for us."""

_LAUNCHERS: Final = frozenset(("TORCHELASTIC_RUN_ID", ON_RAY))
"""Variables of those whose `RANK` counts."""

_GRACE_SECONDS: Final = 100
"""Seconds that a process may take to write its checkpoint; less than its parent process waits."""


_LONGEST: Final = timedelta(days=7)
"""A process waits so long for another at most; where one fails, the launcher ends the others at once."""

Item = TypeVar("Item")


def start_ranks(command: Sequence[str], number: int) -> ExitCode:
    """Run a command once for each device, until all have ended; refuse (`RefusedError`) where one was killed."""
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
                # torch ends the others by SIGTERM where one has failed: that one says why.
                if failure.exitcode < 0 and (failure.exitcode != -SIGTERM or max(codes) <= 0):
                    found = f"process {rank} of {number} was ended by {failure.signal_name()}, and the others with it"
                    advice = "Look whether memory ran out, and run the same again: what is done is taken up."
                    raise RefusedError(f"{found}. {advice}") from error
            return next((code for code in (ExitCode.REFUSED, ExitCode.INTERRUPTED) if code in codes), ExitCode.CRASHED)
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Team:
    """The place of this process among those that do a job together, and on this machine, each from 0."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def sum_over_all(self, values: Sequence[float], device: str) -> list[float]:
        """Add up figures of all processes; each gets the sums once all have called."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as processes

        shared = torch.tensor(values, dtype=torch.float64, device=device)
        processes.all_reduce(shared)
        sums: list[float] = shared.tolist()
        return sums

    def meet(self) -> None:
        """Let the processes of a generation find each other, before they `collect`."""
        if self.size > 1:
            import torch.distributed as processes

            processes.init_process_group("gloo", timeout=_LONGEST)

    def collect(self, own: Item) -> list[Item]:
        """Return what each process has, by their ranks, once all have called; only the first one gets anything."""
        if self.size == 1:
            return [own]
        import torch.distributed as processes

        every: list[Item] = [own] * self.size
        processes.gather_object(own, every if self.is_first else None)
        return every if self.is_first else []

    def wait(self) -> None:
        """Wait until every process has come this far."""
        if self.size > 1:
            import torch.distributed as processes

            processes.barrier()


ALONE: Final = Team()
"""A single process."""


def own_team(environment: Mapping[str, str]) -> Team:
    """Return the place of this process, as the launcher of torch or Ray says it; alone where nobody says anything."""
    if _LAUNCHERS.isdisjoint(environment):
        return ALONE
    return Team(*(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))
