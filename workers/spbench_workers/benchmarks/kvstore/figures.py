"""Figures of MXNet's measure.py: bandwidth, error and log lines.

The bandwidth counts the bytes that each device sends in an optimal allreduce, not the traffic of
the store. The error sums the distances of all devices and divides once, so it grows with the number
of devices. `compute_mean_relative_error` does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import FloatArray


def compute_bandwidth(total_mb: float, devices: int, seconds: float) -> float:
    """Return GB/s per device by measure.py's formula, ``S * 2(n - 1)/n / T / 1000``.

    Args:
        total_mb: Size of all arrays, S, in millions of bytes.
        devices: Devices of one worker, n; the formula gives 0 for 1 device.
        seconds: Time of pushing and pulling all of them, T.
    """
    return total_mb * 2 * (devices - 1) / devices / seconds / 1e3


def compute_distance(results: Iterable[FloatArray], references: Iterable[FloatArray]) -> float:
    """Return the float64 sum over keys and elements of ``|result - reference|``."""
    return sum(
        float(np.abs(np.subtract(result, reference, dtype=np.float64)).sum())
        for result, reference in zip(results, references, strict=True)
    )


def compute_magnitude(references: Iterable[FloatArray]) -> float:
    """Return the float64 sum over keys and elements of ``|reference|``."""
    return sum(float(np.abs(reference).sum(dtype=np.float64)) for reference in references)


def compute_error(distances: Sequence[float], reference: float) -> float:
    """Return measure.py's error: the sum of all distances over the magnitude.

    Args:
        distances: The `compute_distance` of each device.
        reference: The `compute_magnitude` of the references.

    Returns:
        0 without a difference, infinity for a difference from a magnitude of 0.
    """
    total = sum(distances)
    if total == 0.0:
        return 0.0
    return total / reference if reference else float("inf")


def compute_mean_relative_error(distances: Sequence[float], reference: float) -> float:
    """Return the mean relative error over devices."""
    return compute_error(distances, reference) / len(distances)


def format_size_line(arrays: int, total_mb: float) -> str:
    """Return measure.py's first line."""
    return f"num of arrays = {arrays}, total size = {total_mb:f} MB"


def format_batch_line(batch: int, seconds: float, gb_s: float, batch_error: float) -> str:
    """Return measure.py's line of a batch; an error of -1 means that it is untested."""
    return f"iter {batch}, {seconds:f} sec, {gb_s:f} GB/sec per gpu, error {batch_error:f}"
