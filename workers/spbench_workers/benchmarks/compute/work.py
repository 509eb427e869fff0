"""Estimates of the work of matrix products, convolutions, burn-in and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.catalog.work import Work, count_image_values, count_iterations, item_bytes

if TYPE_CHECKING:
    from spbench_workers.benchmarks.compute.entry import (
        BurnParams,
        ConvParams,
        GemmParams,
        NoiseParams,
    )


def gemm_work(params: GemmParams, np: int) -> Work:
    """Return the work of ``compute.gemm``, with a check in float64."""
    n = float(params.n)
    flops = 2.0 * n**3
    return Work(
        flops=np * flops * (count_iterations(params) + 4.0),
        bytes=40.0 * np * n**2 * item_bytes(params.dtype),
        calls=np * count_iterations(params),
        memory=3.0 * np * n**2 * item_bytes(params.dtype),
    )


def conv_work(params: ConvParams, np: int) -> Work:
    """Return the work of ``compute.conv``, with a check in float64."""
    outputs = count_image_values(params, params.out_channels)
    values = count_image_values(params, params.in_channels) + outputs
    flops = 2.0 * outputs * params.in_channels * params.kernel**2
    return Work(
        flops=np * flops * (count_iterations(params) + 4.0),
        bytes=20.0 * np * values * item_bytes(params.dtype),
        calls=np * count_iterations(params),
        memory=np * values * item_bytes(params.dtype),
    )


def burn_work(params: BurnParams, np: int) -> Work:
    """Return the work of ``compute.burn``: its own time, and the last round and its check."""
    n = float(params.n)
    return Work(
        flops=np * 2.0 * n**3 * (count_iterations(params) + 4.0),
        seconds=params.seconds,
        memory=3.0 * np * n**2 * item_bytes(params.dtype),
    )


def noise_work(params: NoiseParams, np: int) -> Work:
    """Return the work of ``compute.noise``; ranks that share a core take it in turn."""
    quantum = params.quantum_us * 1e-6
    return Work(seconds=quantum * (count_iterations(params) + 500.0))
