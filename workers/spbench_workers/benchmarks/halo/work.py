"""Estimates of the work of halo exchanges and convolutions over tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.catalog.work import Work, count_image_values, count_iterations, item_bytes

if TYPE_CHECKING:
    from spbench_workers.benchmarks.halo.entry import ComputeParams, ExchangeParams, FusedParams

_TRIALS = 200
"""Exchanges and operators at set-up and in checks: transports and overlap are chosen by time."""


def exchange_work(params: ExchangeParams, np: int) -> Work:
    """Return the work of ``halo.exchange``."""
    image = count_image_values(params, params.in_channels) * item_bytes(params.dtype)
    # The image is drawn, cut and compared pixel by pixel.
    return Work(
        bytes=60.0 * image,
        messages=8.0 * (count_iterations(params) + _TRIALS),
        memory=image,
    )


def _conv_flops(params: ComputeParams | FusedParams, layers: int) -> float:
    rows, cols = params.kernel
    down, right = params.stride
    outputs = count_image_values(params, params.out_channels) / (down * right)
    return 2.0 * outputs * params.in_channels * rows * cols * layers


def compute_work(params: ComputeParams, np: int) -> Work:
    """Return the work of ``halo.compute``."""
    return _convolution_work(params, 1, np)


def fused_work(params: FusedParams, np: int) -> Work:
    """Return the work of ``halo.fused``."""
    return _convolution_work(params, params.num_layers, np)


def _convolution_work(params: ComputeParams | FusedParams, layers: int, np: int) -> Work:
    flops = _conv_flops(params, layers)
    values = count_image_values(params, params.in_channels)
    values += layers * count_image_values(params, params.out_channels)
    # Timed alone, with its halos there, backward, and with an exchange for each layer.
    repeats = 4.0 * count_iterations(params) + 20.0
    return Work(
        flops=flops * repeats,
        # The whole image on rank 0, as often; and checked in float64.
        single_flops=flops * repeats,
        bytes=200.0 * values * item_bytes(params.dtype),
        messages=8.0 * (repeats + _TRIALS),
        calls=np * (repeats + _TRIALS) * 10.0 * layers,
        memory=values * item_bytes(params.dtype),
    )
