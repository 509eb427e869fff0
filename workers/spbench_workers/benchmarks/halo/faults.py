"""Fault injection for halo exchanges, to show that the checks notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_parallel.spatial.exchange import Exchange
from spbench_workers.context import Context


def inject_halo_fault(context: Context, exchange: Exchange) -> None:
    """Plant a fault in this rank's received halos, where ``--inject`` asks for it.

    Raises:
        NothingToSpoilError: This rank is to show a fault, and has no halo.
    """
    for fault, spoil in _HALO_FAULTS.items():
        if context.planted(fault):
            _plant(context, fault, exchange, spoil())


def inject_gradient_fault(context: Context, exchange: Exchange) -> None:
    """Plant the loss of a received gradient on this rank, where ``--inject`` asks for it.

    Raises:
        NothingToSpoilError: This rank is to show the fault, and no other rank uses its pixels.
    """
    if context.planted("drop-gradient"):
        _plant(context, "drop-gradient", exchange, _drop_gradient)


Spoil = Callable[[Sequence[torch.Tensor]], None]
"""Changes the pieces that have come."""


def _plant(context: Context, fault: str, exchange: Exchange, spoil: Spoil) -> None:
    if not exchange.incoming:
        raise FaultWithoutEffectError(
            f"{fault}: rank {context.world.rank} receives nothing that could be spoiled; "
            "take more tiles, or a kernel that reaches its neighbours"
        )
    wait = exchange.wait

    def wait_and_spoil() -> None:
        wait()
        spoil(exchange.received)

    exchange.wait = wait_and_spoil


def _corrupt_halo() -> Spoil:
    """Return a fault: one value has the wrong sign, and a zero becomes one."""

    def spoil(received: Sequence[torch.Tensor]) -> None:
        value = received[0][0, 0, -1, -1]
        value.copy_(torch.where(value == 0, torch.ones_like(value), -value))

    return spoil


def _drop_halo() -> Spoil:
    """Return a fault: one piece never comes, and its place still holds NaN."""

    def spoil(received: Sequence[torch.Tensor]) -> None:
        received[0].fill_(float("nan"))

    return spoil


def _stale_halo() -> Spoil:
    """Return a fault: all pieces stay as they were after the first exchange."""
    first: list[torch.Tensor] = []

    def spoil(received: Sequence[torch.Tensor]) -> None:
        if not first:
            first.extend(piece.clone() for piece in received)
        for piece, old in zip(received, first, strict=True):
            piece.copy_(old)

    return spoil


def _drop_gradient(received: Sequence[torch.Tensor]) -> None:
    """Set one received gradient to zero, so that it is not added."""
    received[0].zero_()


_HALO_FAULTS: dict[str, Callable[[], Spoil]] = {
    "corrupt-halo": _corrupt_halo,
    "drop-halo": _drop_halo,
    "stale-halo": _stale_halo,
}
