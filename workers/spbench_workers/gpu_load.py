"""The load of a host's GPUs, read through NVML by the package nvidia-ml-py.

One rank per host adds it to its heartbeat. A separate thread reads the GPUs, because NVML can take
seconds: it starts the driver of a GPU that no process uses, and hangs on one that fails. A
heartbeat must not wait for that. The package is in the extra ``gpu``.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from spbench_core.events.gpu_readings import MAX_GPUS, GpuReading, ThrottleReason
from spbench_core.events.rank_events import HEARTBEAT_INTERVAL
from spbench_core.host_facts import describe_device

PACKAGE = "pynvml"
"""The module of nvidia-ml-py."""
MAX_TIME_SHARE = 0.05
"""The largest share of the time for readings, so that they do not disturb the ranks."""
_REASON_BY_BIT = {
    0x04: ThrottleReason.POWER_CAP,
    0x08: ThrottleReason.HARDWARE_SLOWDOWN,
    0x10: ThrottleReason.SYNC_BOOST,
    0x20: ThrottleReason.THERMAL,
    0x40: ThrottleReason.HARDWARE_THERMAL,
    0x80: ThrottleReason.POWER_BRAKE,
    0x200: ThrottleReason.BOARD_LIMIT,
    0x400: ThrottleReason.RELIABILITY,
}
"""NVML's clocks event reasons, nvml.h. An idle GPU (0x1), application clocks (0x2) and the clocks
of a display (0x100) do not count as throttling."""
_SPECIFIC_SLOWDOWNS = {ThrottleReason.HARDWARE_THERMAL, ThrottleReason.POWER_BRAKE}
"""The hardware slowdowns with a known cause. NVML reports the general one, too."""
_NOT_AVAILABLE = {0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF}
"""NVML_VALUE_NOT_AVAILABLE of both sizes."""


class GpuLostError(Exception):
    """The driver has lost a GPU."""


def find_missing_package() -> str | None:
    """Return a message if this host has GPUs, but not the package that reads them."""
    if find_spec(PACKAGE) is not None or describe_device() == "cpu":
        return None
    return (
        "the load of GPUs is not shown, because nvidia-ml-py is missing: pip install 'spbench[gpu]'"
    )


def _ignore(_: str) -> None:
    pass


class GpuLoad:
    """The newest readings of this host's GPUs. Each reading is returned once.

    Args:
        report: Takes a message if the readings end with an error.
    """

    def __init__(self, report: Callable[[str], None] = _ignore) -> None:
        self._report = report
        self._newest: deque[list[GpuReading]] = deque(maxlen=1)
        self._facts: dict[int, GpuReading] = {}
        self._sent_facts: set[int] = set()
        if find_spec(PACKAGE) is not None:
            threading.Thread(target=self._watch, name="gpus", daemon=True).start()

    def __call__(self) -> list[dict[str, Any]]:
        """Return the readings since the last call, without values that are unknown."""
        try:
            readings = self._newest.popleft()
        except IndexError:
            return []
        fields = []
        for reading in readings:
            facts = {}
            if reading.index not in self._sent_facts and reading.index in self._facts:
                self._sent_facts.add(reading.index)
                facts = self._facts[reading.index].to_fields()
            fields.append(facts | reading.to_fields())
        return fields

    def _watch(self) -> None:
        try:
            self._read_repeatedly()
        except Exception as error:  # a rank works without the load of its GPUs
            reason = str(error) or type(error).__name__
            self._report(f"the load of GPUs is not shown, because reading it failed: {reason}")

    def _read_repeatedly(self) -> None:
        meters = open_meters()
        self._facts = {meter.facts.index: meter.facts for meter in meters}
        while meters:
            started = time.monotonic()
            self._newest.append([meter.read() for meter in meters])
            elapsed = time.monotonic() - started
            time.sleep(max(HEARTBEAT_INTERVAL - elapsed, elapsed / MAX_TIME_SHARE))


@dataclass(slots=True)
class GpuMeter:
    """Reads one GPU.

    Attributes:
        nvml: The module of nvidia-ml-py.
        handle: NVML's handle of the GPU; None if the driver had lost it before.
        facts: The values that do not change.
        unsupported: Functions that this GPU or driver does not have. They are not called again.
    """

    nvml: Any
    handle: Any
    facts: GpuReading
    unsupported: set[str] = field(default_factory=set)

    def read(self) -> GpuReading:
        """Return the current values; those that cannot be read are None."""
        try:
            return self._read_values()
        except GpuLostError:
            return GpuReading(self.facts.index, lost=True)

    def _read_values(self) -> GpuReading:
        if self.handle is None:
            raise GpuLostError
        nvml = self.nvml
        utilization = self.call("nvmlDeviceGetUtilizationRates")
        memory = self.call("nvmlDeviceGetMemoryInfo")
        return GpuReading(
            self.facts.index,
            utilization=_scale(getattr(utilization, "gpu", None), 100),
            memory_used_bytes=_take_available(getattr(memory, "used", None)),
            power_w=_scale(self.call("nvmlDeviceGetPowerUsage"), 1000),
            sm_clock_mhz=self.call("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self.call("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            temperature_c=self._read_temperature(),
            throttle_reasons=self._read_throttle_reasons(),
        )

    def read_facts(self) -> None:
        """Read the values that do not change."""
        nvml = self.nvml
        pci = self.call("nvmlDeviceGetPciInfo")
        memory = self.call("nvmlDeviceGetMemoryInfo")
        self.facts = replace(
            self.facts,
            # As CUDA writes it. NVML's own text has a longer domain, in capitals.
            address=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if pci else None,
            name=self._read_name(),
            memory_total_bytes=_take_available(getattr(memory, "total", None)),
            power_limit_w=_scale(self.call("nvmlDeviceGetEnforcedPowerLimit"), 1000),
            max_sm_clock_mhz=self.call("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            max_memory_clock_mhz=self.call("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        )

    def _read_name(self) -> str | None:
        name = self.call("nvmlDeviceGetName")
        return name.decode() if isinstance(name, bytes) else name  # bytes before version 11.5

    def _read_temperature(self) -> int | None:
        sensor = self.nvml.NVML_TEMPERATURE_GPU
        celsius: int | None = self.call("nvmlDeviceGetTemperature", sensor)
        if celsius is None:  # the name from CUDA 14 on
            celsius = self.call("nvmlDeviceGetTemperatureV", sensor)
        return celsius

    def _read_throttle_reasons(self) -> tuple[ThrottleReason, ...] | None:
        bits = self.call("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name in drivers before 535
            bits = self.call("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else tuple(translate_throttle_reasons(bits))

    def call(self, name: str, *arguments: int) -> Any:
        """Return the result of a function of NVML; None if the GPU does not provide it.

        Raises:
            GpuLostError: The driver has lost the GPU.
        """
        nvml = self.nvml
        call = f"{name} {arguments}"
        function: Callable[..., Any] | None = getattr(nvml, name, None)
        if function is None or call in self.unsupported:
            return None
        try:
            result = function(self.handle, *arguments)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            self.unsupported.add(call)
            return None
        except nvml.NVMLError_GpuIsLost:
            raise GpuLostError from None
        except nvml.NVMLError:
            return None
        return _take_available(result) if isinstance(result, int) else result


def open_meters() -> list[GpuMeter]:
    """Return a meter for each GPU of this host, at most `MAX_GPUS`.

    It is empty without the package, a driver, or GPUs that this process may read.
    """
    try:
        nvml = importlib.import_module(PACKAGE)
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
        count = min(nvml.nvmlDeviceGetCount(), MAX_GPUS)
    except nvml.NVMLError:
        return []
    return list(_open_each(nvml, count))


def _open_each(nvml: Any, count: int) -> Iterator[GpuMeter]:
    for index in range(count):
        handle = None
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError_GpuIsLost:
            pass
        except nvml.NVMLError:  # for example a GPU that this process may not read
            continue
        meter = GpuMeter(nvml, handle, GpuReading(index))
        if handle is not None:
            with suppress(GpuLostError):
                meter.read_facts()
        yield meter


def translate_throttle_reasons(bits: int) -> list[ThrottleReason]:
    """Return the reasons in NVML's bits, the most serious first."""
    reasons = {reason for bit, reason in _REASON_BY_BIT.items() if bits & bit}
    if reasons & _SPECIFIC_SLOWDOWNS:
        reasons.discard(ThrottleReason.HARDWARE_SLOWDOWN)
    return [reason for reason in ThrottleReason if reason in reasons]


def _take_available(value: int | None) -> int | None:
    return None if value in _NOT_AVAILABLE else value


def _scale(value: int | None, divisor: int) -> float | None:
    available = _take_available(value)
    return None if available is None else round(available / divisor, 3)
