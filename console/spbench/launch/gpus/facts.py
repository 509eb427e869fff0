"""The GPUs of a host: what the kernel and NVIDIA's driver tell of them, and what can be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spbench_core import host_facts
from spbench_core.host_facts import VISIBLE_DEVICES

MpiMemory = tuple[bool | None, str]
"""Whether MPI takes memory of a GPU, None where only MPI_Init tells, and by what evidence."""
MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest driver for each CUDA, by its first number. Source: NVIDIA's CUDA Toolkit Release
Notes, table of minimum driver versions for CUDA minor version compatibility, Linux."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: its kind, PCI address, NUMA node and UUID; None where the kernel does not tell."""

    model: str
    address: str
    node: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The GPUs of one host.

    Attributes:
        cards: Those that NVIDIA's driver serves.
        undriven: PCI addresses of those that it does not serve.
        files: How many device files there are, /dev/nvidia0 and so on.
        other_files: Whether there are files of other names, as under WSL and on Jetson.
        driver: The version of the kernel's driver.
        cuda: The newest CUDA that the driver's library takes.
        visible: CUDA_VISIBLE_DEVICES as a rank would see it.
        shared_gib: How large /dev/shm is, in GiB.
    """

    cards: tuple[Card, ...] = ()
    undriven: tuple[str, ...] = ()
    files: int = 0
    other_files: bool = False
    driver: str | None = None
    cuda: str | None = None
    visible: str | None = None
    shared_gib: float | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> HostGpus:
        """Return what `host_facts.gpus` has told, here or on another host."""
        cards = tuple(Card(**fields) for fields in told["cards"])
        return cls(**{**told, "cards": cards, "undriven": tuple(told["undriven"])})

    @property
    def there(self) -> bool:
        """Whether there is anything that may be a GPU in use of a driver."""
        return bool(self.cards or self.files or self.other_files)

    @property
    def names(self) -> list[str]:
        """The kind of each, ``GPU`` where only its file is seen."""
        return [card.model for card in self.cards] or [host_facts.UNNAMED_GPU] * self.files

    @property
    def models(self) -> str:
        """``2 x NVIDIA H200``, or that there is one of no known kind; nothing without."""
        models = host_facts.format_name_counts(self.names)
        return models or (host_facts.UNLISTED_GPU if self.other_files else "")

    @property
    def count(self) -> int | None:
        """The most that there may be; None where that is not known.

        Device files are made when they are first asked for, and a container may have few of them.
        """
        return None if self.other_files else max(len(self.cards), self.files)

    @property
    def usable(self) -> int | None:
        """The most that a rank sees, as CUDA reads CUDA_VISIBLE_DEVICES; None where not known.

        Numbers and UUIDs count up to the first one that is not there; one that stands twice makes
        CUDA see none. How many MIG instances count is the driver's to say.
        """
        if self.visible is None or self.count is None:
            return self.count
        words = [word.strip() for word in self.visible.split(",")]
        if any(word.startswith("MIG") for word in words):
            return None
        taken: list[str] = []
        for word in words:
            if not self._names_one(word, self.count):
                break
            taken.append(word)
        return 0 if len(set(taken)) < len(taken) else len(taken)

    def _names_one(self, word: str, count: int) -> bool:
        if word.startswith("GPU-"):
            known = [card.uuid for card in self.cards]
            return not known or any(uuid is None or uuid.startswith(word) for uuid in known)
        return word.isdigit() and int(word) < count


NO_GPUS = HostGpus()
"""Of a host that has not told."""


def too_old(gpus: HostGpus, torch_cuda: str) -> str | None:
    """Return why the driver is too old for torch's CUDA, as a clause; None: it is not, as known.

    The driver's library is believed before the kernel's driver.
    """
    major = int(torch_cuda.partition(".")[0])
    oldest = MINIMUM_DRIVER.get(major)
    needs = f"torch is built for CUDA {torch_cuda}"
    needs += f", which needs driver {oldest} or newer" if oldest else ""
    if gpus.cuda is not None:
        if int(gpus.cuda.partition(".")[0]) >= major:
            return None
        driver = f"driver {gpus.driver}" if gpus.driver else "the driver"
        return f"{driver} takes CUDA up to {gpus.cuda}, and {needs}"
    if gpus.driver is None or oldest is None or _numbers(gpus.driver) >= _numbers(oldest):
        return None
    return f"the driver is {gpus.driver}, and {needs}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def trouble(gpus: HostGpus, torch: str | None, torch_cuda: str | None) -> str | None:
    """Return why no rank of a host can use a GPU, as a clause; None where nothing speaks against.

    Args:
        gpus: What the host has.
        torch: The version of the ranks' torch; None where there is none.
        torch_cuda: The CUDA that torch is built for; empty for a build without, None: not known.
    """
    if not gpus.there:
        bus = f" ({len(gpus.undriven)} on the PCI bus without a driver)" if gpus.undriven else ""
        return f"there is no GPU, neither in /proc/driver/nvidia/gpus nor as /dev/nvidia0{bus}"
    if torch is not None and torch_cuda == "":
        return f"torch {torch} is a build without CUDA"
    if torch_cuda and (old := too_old(gpus, torch_cuda)):
        return old
    if gpus.usable == 0:
        return f"{VISIBLE_DEVICES} is {gpus.visible!r}, which shows {shown(gpus)}"
    return None


def shown(gpus: HostGpus) -> str:
    """Return what CUDA_VISIBLE_DEVICES shows of a known number: ``2 of 8 GPUs``."""
    if gpus.usable:
        return f"{gpus.usable} of {gpus.count} GPUs"
    return f"no GPU; there {'is' if gpus.count == 1 else 'are'} {gpus.count}"
