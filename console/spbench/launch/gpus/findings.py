"""Findings about GPUs: what a host has of them, and what keeps ranks from using them."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import HostGpus, MpiMemory, shown, too_old
from spbench_core.host_facts import DRIVER_LIBRARY, SHARED_MEMORY, VISIBLE_DEVICES

LEAST_SHARED = 1.0
"""GiB of /dev/shm below which NCCL may fail; its guide has containers take as much."""
_WHEELS = "https://pytorch.org/get-started/locally"
_ADDRESSES = 4


def torch_words(torch: str, torch_cuda: str | None) -> str:
    """Return torch's version, and for which CUDA it is built where that is known."""
    if torch_cuda is None:
        return torch
    return f"{torch}, built for CUDA {torch_cuda}" if torch_cuda else f"{torch}, without CUDA"


def in_order(gpus: HostGpus) -> Iterator[Finding]:
    """Yield what there is: each GPU with its place, the driver, and room for NCCL."""
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
    if _several(gpus) and gpus.shared_gib is not None and gpus.shared_gib >= LEAST_SHARED:
        yield Finding(
            FindingStatus.OK,
            "shared memory",
            f"{SHARED_MEMORY} has {gpus.shared_gib:.1f} GiB, for NCCL",
        )


def messages(told: MpiMemory) -> Finding:
    """Return how MPI takes messages of GPUs, with the evidence."""
    takes, why = told
    way = "by way of pinned host memory"
    if takes is not False:
        way = "by device pointers" if takes else "not known before ranks start"
    return Finding(FindingStatus.OK, "MPI on GPUs", f"{way}: {why}")


def amiss(gpus: HostGpus, torch: str | None, torch_cuda: str | None) -> Iterator[Finding]:
    """Yield a note for each thing that keeps ranks from the GPUs of a host.

    Args:
        gpus: What the host has.
        torch: The version of the ranks' torch; None where there is none.
        torch_cuda: The CUDA that it is built for; empty for a build without, None: not known.
    """
    yield from _undriven(gpus)
    if not gpus.there:
        return
    if torch is not None and torch_cuda == "":
        here = gpus.models if gpus.names else "a GPU"
        text = f"{here} here, torch is a CPU build ({torch}): no rank uses a GPU"
        takes = f"for CUDA {gpus.cuda} or older" if gpus.cuda else "for CUDA"
        yield Finding(
            FindingStatus.NOTE, "torch", text, f"install a torch that is built {takes}: {_WHEELS}"
        )
    old = too_old(gpus, torch_cuda) if torch_cuda else None
    if old:
        newest = f" that is built for CUDA {gpus.cuda} or older" if gpus.cuda else " for older CUDA"
        yield Finding(
            FindingStatus.NOTE, "driver", old, f"install a newer driver, or a torch{newest}"
        )
    if gpus.driver and gpus.cuda is None:
        text = f"{DRIVER_LIBRARY} cannot be loaded: torch sees no GPU without it"
        mend = "install the driver's library, or name its folder in LD_LIBRARY_PATH"
        yield Finding(FindingStatus.NOTE, "driver", text, mend)
    yield from _hidden(gpus)
    if _several(gpus) and gpus.shared_gib is not None and gpus.shared_gib < LEAST_SHARED:
        text = (
            f"{SHARED_MEMORY} has {gpus.shared_gib:.2f} GiB: "
            "ranks of NCCL that share a host may fail"
        )
        mend = (
            "give it 1 GiB and more: --shm-size=1g of a container, "
            f"or mount -o remount {SHARED_MEMORY}"
        )
        yield Finding(FindingStatus.NOTE, "shared memory", text, mend)


def _several(gpus: HostGpus) -> bool:
    return gpus.count is not None and gpus.count > 1


def _undriven(gpus: HostGpus) -> Iterator[Finding]:
    if gpus.undriven and not gpus.there:
        named = ", ".join(gpus.undriven[:_ADDRESSES])
        more = f" and {len(gpus.undriven) - _ADDRESSES} more" * (len(gpus.undriven) > _ADDRESSES)
        text = f"NVIDIA's driver serves none of the GPUs on the PCI bus ({named}{more})"
        mend = "load it (modprobe nvidia), or start the container with its GPUs (--gpus all, --nv)"
        yield Finding(FindingStatus.NOTE, "driver", text, mend)


def _hidden(gpus: HostGpus) -> Iterator[Finding]:
    if gpus.usable is not None and gpus.count is not None and gpus.usable < gpus.count:
        text = f"{VISIBLE_DEVICES} is {gpus.visible!r}, which shows {shown(gpus)}"
        yield Finding(
            FindingStatus.NOTE, "devices", text, f"unset {VISIBLE_DEVICES} to have them all"
        )
