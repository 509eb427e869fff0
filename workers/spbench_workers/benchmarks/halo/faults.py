"""Fault injection for halo exchanges, to show that the checks notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_parallel.spatial.exchange import Exchange
from spbench_workers.context import Context


def inject_halo_fault(context: Context, exchange: Exchange) -> None:
    """Inject the fault of ``--inject`` into this rank's received halos.

    Raises:
        FaultWithoutEffectError: The fault is for this rank, which has no halo.
    """
    for fault, corrupt in _HALO_FAULTS.items():
        if context.planted(fault):
            _inject(context, fault, exchange, corrupt())


def inject_gradient_fault(context: Context, exchange: Exchange) -> None:
    """Inject the loss of a received gradient on this rank if ``--inject`` requests it.

    Raises:
        FaultWithoutEffectError: The fault is for this rank, and no other rank uses its pixels.
    """
    if context.planted("drop-gradient"):
        _inject(context, "drop-gradient", exchange, _drop_gradient)


Corruption = Callable[[Sequence[torch.Tensor]], None]
"""Changes the received pieces."""


def _inject(context: Context, fault: str, exchange: Exchange, corrupt: Corruption) -> None:
    if not exchange.incoming:
        raise FaultWithoutEffectError(
            f"{fault}: rank {context.world.rank} receives nothing that could be spoiled; "
            "take more tiles, or a kernel that reaches its neighbours"
        )
    wait = exchange.wait

    def wait_and_corrupt() -> None:
        wait()
        corrupt(exchange.received)

    exchange.wait = wait_and_corrupt


def _corrupt_halo() -> Corruption:
    """Return a fault that flips the sign of one value, or turns a zero into one."""

    def corrupt(received: Sequence[torch.Tensor]) -> None:
        value = received[0][0, 0, -1, -1]
        value.copy_(torch.where(value == 0, torch.ones_like(value), -value))

    return corrupt


def _drop_halo() -> Corruption:
    """Return a fault that leaves NaN in one piece, as if it never arrived."""

    def corrupt(received: Sequence[torch.Tensor]) -> None:
        received[0].fill_(float("nan"))

    return corrupt


def _stale_halo() -> Corruption:
    """Return a fault that keeps all pieces of the first exchange."""
    first: list[torch.Tensor] = []

    def corrupt(received: Sequence[torch.Tensor]) -> None:
        if not first:
            first.extend(piece.clone() for piece in received)
        for piece, old in zip(received, first, strict=True):
            piece.copy_(old)

    return corrupt


def _drop_gradient(received: Sequence[torch.Tensor]) -> None:
    """Set one received gradient to zero, as if it was not added."""
    received[0].zero_()


_HALO_FAULTS: dict[str, Callable[[], Corruption]] = {
    "corrupt-halo": _corrupt_halo,
    "drop-halo": _drop_halo,
    "stale-halo": _stale_halo,
}
