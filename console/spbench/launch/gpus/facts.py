"""The GPUs of a host: facts from kernel and driver, and why they are unusable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spbench_core import host_facts
from spbench_core.host_facts import VISIBLE_DEVICES

MpiMemory = tuple[bool | None, str]
"""Whether MPI accepts memory of a GPU, and the evidence. None if only MPI_Init shows it."""
MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest driver by major version of CUDA.

Source: NVIDIA, CUDA Toolkit Release Notes, table of minimum driver versions for CUDA minor version
compatibility, Linux.
"""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: its model, PCI address, NUMA node and UUID; None if it is unknown."""

    model: str
    address: str
    node: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The GPUs of one host.

    Attributes:
        cards: GPUs with NVIDIA's driver.
        undriven: PCI addresses of GPUs without it.
        files: The number of device files, such as /dev/nvidia0.
        other_files: Whether there are device files with other names, such as on WSL and Jetson.
        driver: The version of the kernel's driver.
        cuda: The newest CUDA version that the driver's library supports.
        visible: CUDA_VISIBLE_DEVICES as a rank would see it.
        shared_gib: The size of /dev/shm in GiB.
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
    def from_answer(cls, answer: Mapping[str, Any]) -> HostGpus:
        """Return the GPUs that `host_facts.find_gpus` reported on some host."""
        cards = tuple(Card(**fields) for fields in answer["cards"])
        return cls(**{**answer, "cards": cards, "undriven": tuple(answer["undriven"])})

    @property
    def any_present(self) -> bool:
        """Whether there may be a GPU with a driver."""
        return bool(self.cards or self.files or self.other_files)

    @property
    def names(self) -> list[str]:
        """The model of each GPU, ``GPU`` if only its device file is visible."""
        return [card.model for card in self.cards] or [host_facts.UNNAMED_GPU] * self.files

    @property
    def models(self) -> str:
        """``2 x NVIDIA H200``, or that the model is unknown; empty without GPUs."""
        models = host_facts.format_name_counts(self.names)
        return models or (host_facts.UNLISTED_GPU if self.other_files else "")

    @property
    def count(self) -> int | None:
        """The largest possible number of GPUs; None if it is unknown.

        Device files are created when they are first used, and a container may have few of them.
        """
        return None if self.other_files else max(len(self.cards), self.files)

    @property
    def usable(self) -> int | None:
        """The largest number that a rank may use by CUDA_VISIBLE_DEVICES; None if unknown.

        CUDA counts numbers and UUIDs up to the first invalid one, and sees no GPU if one is listed
        twice. Only the driver knows how many MIG instances count.
        """
        if self.visible is None or self.count is None:
            return self.count
        names = [name.strip() for name in self.visible.split(",")]
        if any(name.startswith("MIG") for name in names):
            return None
        valid: list[str] = []
        for name in names:
            if not self._is_valid(name, self.count):
                break
            valid.append(name)
        return 0 if len(set(valid)) < len(valid) else len(valid)

    def _is_valid(self, text: str, count: int) -> bool:
        if text.startswith("GPU-"):
            uuids = [card.uuid for card in self.cards]
            return not uuids or any(uuid is None or uuid.startswith(text) for uuid in uuids)
        return text.isdigit() and int(text) < count


NO_GPUS = HostGpus()
"""The GPUs of a host that has not reported any."""


def explain_old_driver(gpus: HostGpus, torch_cuda: str) -> str | None:
    """Return a clause if the driver is too old for torch's CUDA; otherwise None.

    The version of the driver's library takes precedence over that of the kernel's driver.
    """
    major = int(torch_cuda.partition(".")[0])
    min_driver = MINIMUM_DRIVER.get(major)
    requirement = f"torch is built for CUDA {torch_cuda}"
    requirement += f", which needs driver {min_driver} or newer" if min_driver else ""
    if gpus.cuda is not None:
        if int(gpus.cuda.partition(".")[0]) >= major:
            return None
        driver = f"driver {gpus.driver}" if gpus.driver else "the driver"
        return f"{driver} takes CUDA up to {gpus.cuda}, and {requirement}"
    if (
        gpus.driver is None
        or min_driver is None
        or _parse_version(gpus.driver) >= _parse_version(min_driver)
    ):
        return None
    return f"the driver is {gpus.driver}, and {requirement}"


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def explain_unusable(gpus: HostGpus, torch: str | None, torch_cuda: str | None) -> str | None:
    """Return a clause if no rank of a host can use a GPU; None if no reason is known.

    Args:
        gpus: The GPUs of the host.
        torch: The version of the ranks' torch; None if it is missing.
        torch_cuda: The CUDA version of torch's build; empty for a CPU build, None if unknown.
    """
    if not gpus.any_present:
        bus = f" ({len(gpus.undriven)} on the PCI bus without a driver)" if gpus.undriven else ""
        return f"there is no GPU, neither in /proc/driver/nvidia/gpus nor as /dev/nvidia0{bus}"
    if torch is not None and torch_cuda == "":
        return f"torch {torch} is a build without CUDA"
    if torch_cuda and (reason := explain_old_driver(gpus, torch_cuda)):
        return reason
    if gpus.usable == 0:
        return f"{VISIBLE_DEVICES} is {gpus.visible!r}, which shows {describe_visible(gpus)}"
    return None


def describe_visible(gpus: HostGpus) -> str:
    """Return the visible share of a host's GPUs, such as ``2 of 8 GPUs``."""
    if gpus.usable:
        return f"{gpus.usable} of {gpus.count} GPUs"
    return f"no GPU; there {'is' if gpus.count == 1 else 'are'} {gpus.count}"
