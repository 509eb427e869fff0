"""The figures of MXNet's measure.py: bandwidth, error and its log lines.

Its bandwidth counts what each device would send in the best allreduce, whatever the store really
sends. Its error adds up the devices' and divides once, so that it grows with their number;
`mean_relative_error` does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import FloatArray


def bandwidth_gb_s(total_mb: float, devices: int, seconds: float) -> float:
    """Return GB/s a device by measure.py's formula, ``S * 2(n - 1)/n / T / 1000``.

    Args:
        total_mb: Size of all arrays, S, in millions of bytes.
        devices: Devices of one worker, n; with 1 the formula gives 0, network or not.
        seconds: Time of pushing and pulling all of them, T.
    """
    return total_mb * 2 * (devices - 1) / devices / seconds / 1e3


def distance(results: Iterable[FloatArray], references: Iterable[FloatArray]) -> float:
    """Return the sum over keys and elements of ``|result - reference|``, summed in float64."""
    return sum(
        float(np.abs(np.subtract(result, reference, dtype=np.float64)).sum())
        for result, reference in zip(results, references, strict=True)
    )


def magnitude(references: Iterable[FloatArray]) -> float:
    """Return the sum over keys and elements of ``|reference|``, summed in float64."""
    return sum(float(np.abs(reference).sum(dtype=np.float64)) for reference in references)


def error(distances: Sequence[float], reference: float) -> float:
    """Return measure.py's error: all devices' distances over the reference's magnitude, once.

    Args:
        distances: The `distance` of each device.
        reference: The `magnitude` of the references.

    Returns:
        0 where nothing differs, infinity where something differs from nothing.
    """
    total = sum(distances)
    if total == 0.0:
        return 0.0
    return total / reference if reference else float("inf")


def mean_relative_error(distances: Sequence[float], reference: float) -> float:
    """Return the relative error of a device, as the mean over devices."""
    return error(distances, reference) / len(distances)


def format_size_line(arrays: int, total_mb: float) -> str:
    """Return measure.py's first line."""
    return f"num of arrays = {arrays}, total size = {total_mb:f} MB"


def format_batch_line(batch: int, seconds: float, gb_s: float, batch_error: float) -> str:
    """Return measure.py's line of a batch; its error is -1 where results were not tested."""
    return f"iter {batch}, {seconds:f} sec, {gb_s:f} GB/sec per gpu, error {batch_error:f}"
