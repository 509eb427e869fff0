"""Settings made before CUDA and MPI start: the GPU, Open MPI's windows, loading of kernels.

UCX picks adapters by the GPU that is current when MPI starts. A rank makes its own current only
where the job says that it needs one (``SPBENCH_DEVICE=cuda``): each context takes memory of the
GPU, and a job on the host is to take none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import pairwise

from spbench_core.events.rank_events import ENV_DEVICE, ENV_KERNEL_LOADING
from spbench_parallel.device.driver import Driver
from spbench_workers.binding.local_rank import read_local_rank


def select_gpu(environ: Mapping[str, str], load: Callable[[], Driver | None]) -> int | None:
    """Make the GPU of this local rank current.

    Return its index, None where none was taken.

    A failure here is no error: torch meets it again, and reports it better.
    """
    told = read_local_rank(environ)
    if environ.get(ENV_DEVICE) != "cuda" or told is None or (driver := load()) is None:
        return None
    count = driver.count_gpus()
    if not count:
        return None
    index = told[0] % count
    return index if driver.make_current(index) else None


def avoid_ucx_windows(environ: MutableMapping[str, str]) -> None:
    """Let Open MPI leave out its UCX component for one-sided communication.

    The component prints two lines of errors per rank on a host without a fabric of UCX. The
    console sets the variable for its launches; a rank that a user starts has it from here. A value
    that is already set is kept, and other libraries ignore the variable.
    """
    environ.setdefault("OMPI_MCA_osc", "^ucx")


def request_eager_loading(words: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """Let CUDA load all kernels when it starts, where a command line asks for backend nccl.

    Under the console the console sets it. A value that is already set is kept.
    """
    if ("--backend", "nccl") in pairwise(words) or "--backend=nccl" in words:
        environ.setdefault(ENV_KERNEL_LOADING, "EAGER")


def kernel_loading(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return when CUDA loads kernels, ``eager`` or ``lazy``, and why."""
    value = environ.get(ENV_KERNEL_LOADING)
    if value is None:
        return "lazy", f"{ENV_KERNEL_LOADING} is not set"
    return "eager" if value == "EAGER" else "lazy", f"{ENV_KERNEL_LOADING}={value}"
