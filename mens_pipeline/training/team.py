"""The processes that train one adapter together, one a device: which of them this is, and what they agree on.

Each holds the whole base. Of every optimizer step each takes its part of the micro-batches, and their gradients are
summed: the step is the one that a single process would take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from mens_pipeline.errors import RefusedError

_SHARDED: Final = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}
"""Variables by which accelerate is told to cut a model up -> what it then does it with."""

ON_RAY: Final = "MENS_TRAINS_ON_RAY"
"""Set in the processes that Ray starts for us."""

_LAUNCHERS: Final = frozenset(("TORCHELASTIC_RUN_ID", ON_RAY))
"""Variables of those whose `RANK` counts."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Team:
    """The place of this process among those that train together, and on this machine, each from 0."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def summed(self, values: Sequence[float], device: str) -> list[float]:
        """Add up figures of all processes; each gets the sums once all have called."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as processes

        shared = torch.tensor(values, dtype=torch.float64, device=device)
        processes.all_reduce(shared)
        sums: list[float] = shared.tolist()
        return sums

    def wait(self) -> None:
        """Wait until every process has come this far."""
        if self.size > 1:
            import torch.distributed as processes

            processes.barrier()


def own_team(environment: Mapping[str, str]) -> Team:
    """Return the place of this process, as the launcher of torch or Ray says it; alone where nobody says anything."""
    if _LAUNCHERS.isdisjoint(environment):
        return Team()
    return Team(*(int(environment[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))


def share_of(batches: Sequence[_Item], accumulated: int, team: Team) -> list[_Item | None]:
    """Return the micro-batches of one process: of every optimizer step each n-th, where n processes train together.

    Returns:
        As many in every process; None where a step has none left for this one.
    """
    own: list[_Item | None] = []
    for start in range(0, len(batches), accumulated):
        step = batches[start : start + accumulated]
        mine = step[team.rank :: team.size]
        own += [*mine, *([None] * (-(-len(step) // team.size) - len(mine)))]
    return own


def refuse_sharding(environment: Mapping[str, str]) -> None:
    """Check that accelerate is not told to shard the base over several devices.

    Raises:
        RefusedError: It is.
    """
    for variable, name in _SHARDED.items():
        if environment.get(variable, "").lower() in {"1", "true", "yes", "on"}:
            raise RefusedError(f"{variable}: {why_not_sharded(name)} Unset it, and use --devices N.")


def why_not_sharded(name: str) -> str:
    """Return why a base in four bits is not cut up over several devices."""
    return (
        f"{name} cannot train a base in four bits: packed weights are left whole on every device, so no memory is "
        "saved, and where they are stored as bfloat16, copying them may change their bits. Each device has to hold the "
        "whole base."
    )
