"""Reductions of vectors on a GPU, staged through pinned memory of the host."""

from __future__ import annotations

from collections.abc import Callable

import torch

from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import catch_out_of_memory
from spbench_workers.collectives.base import RankTraffic, Reduction

Opener = Callable[[torch.Tensor, torch.Tensor], Reduction]
"""A function that opens a reduction from a source on the host to a result on the host."""


class StagedReduction:
    """A reduction in pinned memory of the host, between two copies that count as its time.

    Args:
        source: The input of this rank, on a GPU.
        result: Memory of the output; the source itself works in place.
        open_: Opens the reduction on the host.
    """

    def __init__(self, source: torch.Tensor, result: torch.Tensor, open_: Opener) -> None:
        self._source = source
        self._result = result
        self._device = result.device
        self._given = _pinned(source)
        self._reduced = self._given if source is result else _pinned(result)
        self._on_host = open_(self._given, self._reduced)

    @property
    def traffic(self) -> RankTraffic | None:
        return self._on_host.traffic

    def run(self) -> None:
        self.start()
        self.wait()

    def start(self) -> None:
        self._given.copy_(self._source, non_blocking=True)
        synchronize_stream(self._device)
        self._on_host.start()

    def poll(self) -> bool:
        return self._on_host.poll()

    def wait(self) -> None:
        self._on_host.wait()
        self._result.copy_(self._reduced, non_blocking=True)
        # The next run writes what is copied here.
        synchronize_stream(self._device)

    def free(self) -> None:
        self._on_host.free()


def _pinned(vector: torch.Tensor) -> torch.Tensor:
    with catch_out_of_memory(vector.nbytes):
        return torch.empty_like(vector, device="cpu", pin_memory=vector.device.type == "cuda")
