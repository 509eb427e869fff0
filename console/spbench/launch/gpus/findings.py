"""Findings about the GPUs of a host, and problems that keep ranks off them."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import HostGpus, MpiMemory, describe_visible, explain_old_driver
from spbench_core.host_facts import DRIVER_LIBRARY, SHARED_MEMORY, VISIBLE_DEVICES

MIN_SHARED_GIB = 1.0
"""GiB of /dev/shm below which NCCL may fail. NCCL's guide recommends as much for containers."""
_WHEELS = "https://pytorch.org/get-started/locally"
_MAX_ADDRESSES = 4


def describe_torch(torch: str, torch_cuda: str | None) -> str:
    """Return torch's version, and the CUDA version of its build if it is known."""
    if torch_cuda is None:
        return torch
    return f"{torch}, built for CUDA {torch_cuda}" if torch_cuda else f"{torch}, without CUDA"


def list_gpus(gpus: HostGpus) -> Iterator[Finding]:
    """Yield each GPU with its NUMA node, the driver, and the shared memory for NCCL."""
    yield Finding(FindingStatus.OK, "devices", gpus.models or "cpu")
    for number, card in enumerate(gpus.cards):
        node = "its NUMA node is not known" if card.node is None else f"NUMA node {card.node}"
        yield Finding(
            FindingStatus.OK, f"GPU {number}", f"{card.model}, PCI {card.address}, {node}"
        )
    if gpus.driver or gpus.cuda:
        takes = f", takes CUDA up to {gpus.cuda}" if gpus.cuda else ""
        yield Finding(
            FindingStatus.OK, "driver", f"NVIDIA {gpus.driver or 'of unknown version'}{takes}"
        )
    if _has_several(gpus) and gpus.shared_gib is not None and gpus.shared_gib >= MIN_SHARED_GIB:
        yield Finding(
            FindingStatus.OK,
            "shared memory",
            f"{SHARED_MEMORY} has {gpus.shared_gib:.1f} GiB, for NCCL",
        )


def make_mpi_memory_finding(mpi_memory: MpiMemory) -> Finding:
    """Return how MPI sends memory of GPUs, with the evidence."""
    accepted, evidence = mpi_memory
    if accepted is None:
        path = "not known before ranks start"
    elif accepted:
        path = "by device pointers"
    else:
        path = "by way of pinned host memory"
    return Finding(FindingStatus.OK, "MPI on GPUs", f"{path}: {evidence}")


def find_problems(gpus: HostGpus, torch: str | None, torch_cuda: str | None) -> Iterator[Finding]:
    """Yield a note for each problem that keeps ranks from the GPUs of a host.

    Args:
        gpus: The GPUs of the host.
        torch: The version of the ranks' torch; None if it is missing.
        torch_cuda: The CUDA version of torch's build; empty for a CPU build, None if unknown.
    """
    yield from _find_undriven(gpus)
    if not gpus.any_present:
        return
    if torch is not None and torch_cuda == "":
        models = gpus.models if gpus.names else "a GPU"
        text = f"{models} here, torch is a CPU build ({torch}): no rank uses a GPU"
        build = f"for CUDA {gpus.cuda} or older" if gpus.cuda else "for CUDA"
        yield Finding(
            FindingStatus.NOTE, "torch", text, f"install a torch that is built {build}: {_WHEELS}"
        )
    reason = explain_old_driver(gpus, torch_cuda) if torch_cuda else None
    if reason:
        build = f" that is built for CUDA {gpus.cuda} or older" if gpus.cuda else " for older CUDA"
        yield Finding(
            FindingStatus.NOTE, "driver", reason, f"install a newer driver, or a torch{build}"
        )
    if gpus.driver and gpus.cuda is None:
        text = f"{DRIVER_LIBRARY} cannot be loaded: torch sees no GPU without it"
        remedy = "install the driver's library, or name its folder in LD_LIBRARY_PATH"
        yield Finding(FindingStatus.NOTE, "driver", text, remedy)
    yield from _find_hidden(gpus)
    if _has_several(gpus) and gpus.shared_gib is not None and gpus.shared_gib < MIN_SHARED_GIB:
        text = (
            f"{SHARED_MEMORY} has {gpus.shared_gib:.2f} GiB: "
            "ranks of NCCL that share a host may fail"
        )
        remedy = (
            "give it 1 GiB and more: --shm-size=1g of a container, "
            f"or mount -o remount {SHARED_MEMORY}"
        )
        yield Finding(FindingStatus.NOTE, "shared memory", text, remedy)


def _has_several(gpus: HostGpus) -> bool:
    return gpus.count is not None and gpus.count > 1


def _find_undriven(gpus: HostGpus) -> Iterator[Finding]:
    if gpus.undriven and not gpus.any_present:
        addresses = ", ".join(gpus.undriven[:_MAX_ADDRESSES])
        hidden = len(gpus.undriven) - _MAX_ADDRESSES
        more = f" and {hidden} more" if hidden > 0 else ""
        text = f"NVIDIA's driver serves none of the GPUs on the PCI bus ({addresses}{more})"
        remedy = (
            "load it (modprobe nvidia), or start the container with its GPUs (--gpus all, --nv)"
        )
        yield Finding(FindingStatus.NOTE, "driver", text, remedy)


def _find_hidden(gpus: HostGpus) -> Iterator[Finding]:
    if gpus.usable is not None and gpus.count is not None and gpus.usable < gpus.count:
        text = f"{VISIBLE_DEVICES} is {gpus.visible!r}, which shows {describe_visible(gpus)}"
        yield Finding(
            FindingStatus.NOTE, "devices", text, f"unset {VISIBLE_DEVICES} to have them all"
        )
