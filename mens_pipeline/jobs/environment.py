"""The environment of this process, and that of processes that load models."""

import os
import sys
from collections.abc import Mapping
from typing import Final

_SECRETS: Final = (
    *("AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SECRETS"),
    *("TOKEN", "DSN", "PROXY", "URL", "TRACKERS"),
)
"""Endings of words in names of variables that may hold a secret, or an address with a password in it."""


_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Keep memory that tensors gave back, up to 32 MB each: the system would clear every page of it again (glibc alone)."""


def num_processors() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_environment() -> Mapping[str, str]:
    """Show the environment of this process to who looks for what a launcher or a user left there."""
    return os.environ


def environment_without_secrets(keep: tuple[str, ...] = ()) -> dict[str, str]:
    """Copy the environment of this process without what may hold a secret; upper-case names `keep` are prefixes."""

    def may_be_secret(name: str) -> bool:
        return any(word.endswith(_SECRETS) for word in name.split("_")) and not name.startswith(keep)

    return {name: value for name, value in os.environ.items() if not may_be_secret(name.upper())}


def training_environment(num_devices: int = 1) -> dict[str, str]:
    """Return the environment of a training process: this one's, without secrets, the network and chatter.

    What loads a model of somebody else's needs no password, so it is given none.

    Its processes share out `num_devices` GPUs, one each.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(num_devices)))).split(",")
    return {
        **environment_without_secrets(),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Threads that wait without spinning: half the time of the default on a machine with other work to do, and no
        # more on a quiet one.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        **{name: os.environ.get(name, value) for name, value in _MEMORY.items()},
        **(_of_several(num_devices) if num_devices > 1 else {}),
        "TRANSFORMERS_VERBOSITY": "error",
        # One GPU a process: with more of them in sight, the trainer would split each micro-batch over all, which
        # four-bit bases cannot do.
        "CUDA_VISIBLE_DEVICES": ",".join(seen[:num_devices]),
        # One arithmetic on one machine, whatever a library prefers.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def ray_environment() -> dict[str, str]:
    """Return the environment of a process that has a cluster train: with the token of Ray, which says who has a GPU."""
    own = environment_without_secrets(("RAY_",))
    ours = {name: value for name, value in training_environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    return ours | {name: value for name, value in own.items() if name.startswith(("RAY_", "CUDA_VISIBLE_DEVICES"))}


def _of_several(num_processes: int) -> dict[str, str]:
    """Return the variables that several processes need besides, unless the user sets them."""
    usual = {
        # Threads of all together are as many as there are CPUs; the launcher of torch would give each process one.
        "OMP_NUM_THREADS": str(max(1, num_processors() // num_processes)),
        # They are on one machine: what they say to each other does not leave it.
        **(dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo") if sys.platform == "linux" else {}),
    }
    return {name: os.environ.get(name, value) for name, value in usual.items()}


def keep_current_folder_out() -> None:
    """Have no Python process that this one starts import from the current folder, which may be a stranger's workspace.

    The standard library starts the processes of a pool with `-c`, which looks there before anywhere else.
    """
    os.environ["PYTHONSAFEPATH"] = "1"


def go_offline() -> None:
    """Give this process the environment of a training process; before the deep learning stack is loaded.

    Secrets must have been read before: they are taken out, since this process loads models of somebody else's.
    """
    for name in os.environ.keys() - environment_without_secrets().keys():
        del os.environ[name]
    os.environ.update(training_environment())
