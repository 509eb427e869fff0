"""Checks of the readings of GPUs by NVML against torch, and the cost of a reading.

    python -m benchmarks.gpu_once.gpu_load [--simulated]

Printed are the readings of each GPU, idle and under load, the values that it does not provide, and
the time of each call. The exit code is 1 if a check failed: the GPU of torch is among those of
NVML, a busy GPU is busy, and allocated memory is used. With ``--simulated`` the package is a
stand-in, and torch is not used.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

from spbench_core.events.gpu_readings import GpuReading
from spbench_workers.gpu_load import PACKAGE, GpuMeter, open_meters

SIMULATED = "--simulated" in sys.argv
READINGS = 50
LOAD_SECONDS = 3.0
"""NVML computes the utilization over up to a second."""
ALLOCATED_BYTES = 1 << 30
SIZE = 8192
MIN_BUSY_SHARE = 0.5
PARTS = {field.name for field in fields(GpuReading)} - {"index", "lost"}


def main() -> int:
    """Run the checks and return the exit code."""
    if SIMULATED:
        use_simulated_package()
    started = time.perf_counter()
    meters = open_meters()
    print(f"{len(meters)} GPUs, opened in {1e3 * (time.perf_counter() - started):.1f} ms")
    if not meters:
        print("FAILED: no GPU can be read: no package nvidia-ml-py, no driver, or no permission")
        return 1
    for meter in meters:
        print_readings(meter)
    for line in measure_calls(meters[0]):
        print(line)
    problems = [] if SIMULATED else list(compare_with_torch(meters))
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def use_simulated_package() -> None:
    """Let the reader import the stand-in of the tests, with one GPU."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests/standins/nvml"))
    package: Any = importlib.import_module(PACKAGE)
    package.GPUS.append(package.Gpu())


def print_readings(meter: GpuMeter) -> None:
    """Print the values of a GPU, and the names of those that it does not provide."""
    values = meter.facts.to_fields() | meter.read().to_fields()
    print(values)
    print(f"absent: {', '.join(sorted(PARTS - values.keys())) or 'nothing'}")


def measure_calls(meter: GpuMeter) -> Iterator[str]:
    """Yield the time of a whole reading, and of each call of NVML."""
    readings_us = []
    calls_us: dict[str, list[float]] = defaultdict(list)
    nvml = meter.nvml

    class TimedFunctions:
        def __getattr__(self, name: str) -> Any:
            value = getattr(nvml, name)
            return time_call(value, calls_us[name]) if name.startswith("nvmlDevice") else value

    for _ in range(READINGS):
        started = time.perf_counter()
        meter.read()
        readings_us.append(1e6 * (time.perf_counter() - started))
    meter.nvml = TimedFunctions()
    for _ in range(READINGS):
        meter.read()
    meter.nvml = nvml
    yield f"a reading: median {median(readings_us):.0f} us, highest {max(readings_us):.0f} us"
    for name, times_us in sorted(calls_us.items()):
        yield f"{name}: median {median(times_us):.0f} us, highest {max(times_us):.0f} us"


def time_call(function: Callable[..., Any], times_us: list[float]) -> Callable[..., Any]:
    """Return a function that also adds its time in microseconds to a list."""

    def timed_function(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            times_us.append(1e6 * (time.perf_counter() - started))

    return timed_function


def compare_with_torch(meters: list[GpuMeter]) -> Iterator[str]:
    """Yield the differences between NVML and the GPU that torch uses."""
    import torch

    from spbench_parallel.device.gpus import read_pci_address

    device = torch.device("cuda", 0)
    address = read_pci_address(device)
    meter = next((meter for meter in meters if meter.facts.address == address), None)
    if meter is None:
        addresses = ", ".join(str(meter.facts.address) for meter in meters)
        yield f"torch uses the GPU at {address}, NVML has {addresses}"
        return
    torch.ones(1, device=device)
    used_before = meter.read().memory_used_bytes
    block = torch.empty(ALLOCATED_BYTES, dtype=torch.uint8, device=device)
    used_after = meter.read().memory_used_bytes
    if used_before is None or used_after is None:
        print("not checked: used memory is not reported")
    else:
        growth = used_after - used_before
        print(f"used memory grew by {growth} bytes for {ALLOCATED_BYTES} allocated bytes")
        if growth < ALLOCATED_BYTES // 2:
            yield f"{ALLOCATED_BYTES} bytes were allocated, used memory grew by {growth}"
    with keep_busy(device):
        time.sleep(LOAD_SECONDS)
        reading = meter.read()
    print(f"under load: {reading.to_fields()}")
    if reading.utilization is None:
        print("not checked: utilization is not reported")
    elif reading.utilization < MIN_BUSY_SHARE:
        yield f"a busy GPU has utilization {reading.utilization}"
    del block


@contextmanager
def keep_busy(device: Any) -> Iterator[None]:
    """Multiply matrices on a GPU in another thread.

    Raises:
        Exception: The error that ended the multiplications.
    """
    import torch

    ended = threading.Event()
    errors: list[Exception] = []
    matrix = torch.randn(SIZE, SIZE, device=device, dtype=torch.bfloat16)

    def multiply() -> None:
        try:
            while not ended.is_set():
                torch.mm(matrix, matrix)
                torch.cuda.synchronize(device)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=multiply)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


if __name__ == "__main__":
    sys.exit(main())
