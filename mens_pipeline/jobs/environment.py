"""The environment of this process, and of processes that load models."""

import os
import sys
from collections.abc import Mapping
from typing import Final

_NEEDED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_", "TZ", "TMP", "TEMP", "XDG_", "LD_", "DYLD_"),
    *("PYTHON", "VIRTUAL_ENV", "CONDA_", "COVERAGE_", "CC", "CXX", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "NIX_"),
    *("CUDA", "CUDNN", "CUBLAS", "NVIDIA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "BNB_", "FLA_"),
    *("ROCM_", "ROCR_", "HIP_", "HSA_", "MIOPEN_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_"),
    *("HF_", "TRANSFORMERS_", "TOKENIZERS_", "ACCELERATE_", "MENS_", "VOX_", "ONEDNN_", "DNNL_", "ATEN_", "NO_COLOR"),
)
_SECRETS: Final = ("AUTH", "KEY", "PASSWORD", "SECRET", "TOKEN", "URL")
"""Prefixes of the variables that a process may need, and endings of words that name a secret among them: HF_TOKEN."""

_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Settings of glibc that keep freed tensors up to 32 MB, because the system clears new memory page by page."""

_PASSED: Final = (
    *("CUBLAS_WORKSPACE_CONFIG", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"),
    *("PYTHONPATH", "PYTHONSAFEPATH", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_VERBOSITY"),
)


def num_processors() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_environment() -> Mapping[str, str]:
    """Return the environment of this process, for variables that a launcher or a user set."""
    return os.environ


def environment_without_secrets(keep: tuple[str, ...] = ()) -> dict[str, str]:
    """Copy the variables that a process which loads models may need, and those with a prefix in `keep`."""

    def is_kept(name: str) -> bool:
        may_be_secret = any(word.endswith(_SECRETS) for word in name.split("_"))
        return name.startswith(keep) or (name.startswith(_NEEDED) and not may_be_secret)

    return {name: value for name, value in os.environ.items() if is_kept(name.upper())}


def training_environment(num_devices: int = 1) -> dict[str, str]:
    """Return the environment of a training process: what it needs of this one's, offline, with quiet libraries.

    It has no secrets, because the process loads untrusted models. `num_devices` GPUs are visible, one per process.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(num_devices)))).split(",")
    return {
        # Waiting without spinning halves the time on a busy machine, and changes nothing on an idle one.
        "OMP_WAIT_POLICY": "PASSIVE",
        **_MEMORY,
        **(_of_several(num_devices) if num_devices > 1 else {}),
        **environment_without_secrets(),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        # One GPU per process: with more, the trainer would split each micro-batch, which four-bit bases do not support.
        "CUDA_VISIBLE_DEVICES": ",".join(seen[:num_devices]),
        # Deterministic cuBLAS: runs on one machine compute the same numbers.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def worker_environment() -> dict[str, str]:
    """Return the variables that workers of a Ray cluster get in addition to Ray's."""
    return {name: value for name, value in ray_environment().items() if name in _PASSED}


def ray_environment() -> dict[str, str]:
    """Return the environment of a process that uses a cluster, including Ray's token."""
    own = environment_without_secrets(("RAY_",))
    ours = {name: value for name, value in training_environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    return ours | {name: value for name, value in own.items() if name.startswith(("RAY_", "CUDA_VISIBLE_DEVICES"))}


def _of_several(num_processes: int) -> dict[str, str]:
    """Return the extra variables of one of several processes."""
    return {
        # One thread per CPU over all processes; torch's launcher would give each process one thread.
        "OMP_NUM_THREADS": str(max(1, num_processors() // num_processes)),
        # All processes run on this machine, so their messages can use the loopback interface.
        **(dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo") if sys.platform == "linux" else {}),
    }


def keep_current_folder_out() -> None:
    """Keep child processes from importing from the current folder, which may be an untrusted workspace.

    The standard library starts pool processes with `-c`, which searches the current folder first.
    """
    os.environ["PYTHONSAFEPATH"] = "1"


def go_offline() -> None:
    """Give this process the environment of a training process; call this before importing deep learning libraries.

    Read settings before the call: it removes secrets and unknown variables, because the process loads untrusted models.
    """
    for name in os.environ.keys() - environment_without_secrets().keys():
        del os.environ[name]
    os.environ.update(training_environment())
