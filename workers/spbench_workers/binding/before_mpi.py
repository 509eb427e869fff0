"""Settings made before CUDA and MPI start: GPU, Open MPI, loading of kernels.

UCX chooses adapters by the GPU that is current when MPI starts. A rank makes its GPU current only
if the job needs one (``SPBENCH_DEVICE=cuda``), because each context takes memory of the GPU, and a
job on the host must not take any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import pairwise

from spbench_core.events.rank_events import ENV_DEVICE, ENV_KERNEL_LOADING
from spbench_parallel.device.driver import Driver
from spbench_workers.binding.local_rank import read_local_rank


def select_gpu(environ: Mapping[str, str], load: Callable[[], Driver | None]) -> int | None:
    """Make the GPU of this local rank current; return its index, or None without one.

    A failure here is not an error: torch detects it again, and reports it better.
    """
    local_rank = read_local_rank(environ)
    if environ.get(ENV_DEVICE) != "cuda" or local_rank is None or (driver := load()) is None:
        return None
    count = driver.count_gpus()
    if not count:
        return None
    index = local_rank[0] % count
    return index if driver.make_current(index) else None


def avoid_ucx_windows(environ: MutableMapping[str, str]) -> None:
    """Let Open MPI leave out its UCX component for one-sided communication.

    The component prints two lines of errors per rank on a host without a fabric for UCX. The
    console sets the variable for its launches; here it is set for ranks that a user starts. An
    existing value is kept, and other libraries ignore the variable.
    """
    environ.setdefault("OMPI_MCA_osc", "^ucx")


def request_eager_loading(arguments: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """Let CUDA load all kernels when it starts, if the backend is nccl.

    In launches of the console, the console sets it. An existing value is kept.
    """
    if ("--backend", "nccl") in pairwise(arguments) or "--backend=nccl" in arguments:
        environ.setdefault(ENV_KERNEL_LOADING, "EAGER")


def kernel_loading(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return when CUDA loads kernels, ``eager`` or ``lazy``, and the reason."""
    value = environ.get(ENV_KERNEL_LOADING)
    if value is None:
        return "lazy", f"{ENV_KERNEL_LOADING} is not set"
    return "eager" if value == "EAGER" else "lazy", f"{ENV_KERNEL_LOADING}={value}"
