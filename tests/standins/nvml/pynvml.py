"""A stand-in for the module pynvml of nvidia-ml-py 13, with simulated GPUs.

It has the functions, constants, error classes and fields that `spbench_workers.gpu_load` uses. A
test compares them with the real package where that is installed. A test sets `GPUS`; a rank reads
them from the variable STANDIN_GPUS, a JSON list of fields of `Gpu`.
"""

# ruff: noqa: N801, N802, N818 - the names are those of the package

import json
import os
from dataclasses import dataclass, field

NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_UNKNOWN = 999

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2


class NVMLError(Exception):
    """An error code; each code of this module has its subclass."""

    value: int | None

    def __new__(cls, value=None):
        if cls is NVMLError:
            cls = _CLASSES.get(value, cls)
        error = Exception.__new__(cls)
        error.value = value
        return error


class NVMLError_Uninitialized(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_FunctionNotFound(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


_CLASSES = {
    NVML_ERROR_UNINITIALIZED: NVMLError_Uninitialized,
    NVML_ERROR_NOT_SUPPORTED: NVMLError_NotSupported,
    NVML_ERROR_NO_PERMISSION: NVMLError_NoPermission,
    NVML_ERROR_DRIVER_NOT_LOADED: NVMLError_DriverNotLoaded,
    NVML_ERROR_LIBRARY_NOT_FOUND: NVMLError_LibraryNotFound,
    NVML_ERROR_FUNCTION_NOT_FOUND: NVMLError_FunctionNotFound,
    NVML_ERROR_GPU_IS_LOST: NVMLError_GpuIsLost,
    NVML_ERROR_UNKNOWN: NVMLError_Unknown,
}


@dataclass
class Gpu:
    """A simulated GPU, in NVML's units.

    Attributes:
        bus: The bus of its PCI address, ``0000:BUS:00.0``.
        errors: The code that each function raises, by its name without ``nvmlDeviceGet``.
        lost_after: The number of calls after which the GPU is lost; None if it never is.
    """

    bus: int = 0x81
    name: str = "NVIDIA H200"
    utilization: int = 97
    memory_used: int = 60 << 30
    memory_total: int = 141 << 30
    power: int = 650_000
    power_limit: int = 700_000
    sm_clock: int = 1980
    memory_clock: int = 3201
    max_sm_clock: int = 1980
    max_memory_clock: int = 3201
    temperature: int = 61
    reasons: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost_after: int | None = None
    calls: list[str] = field(default_factory=list)


@dataclass
class c_nvmlUtilization_t:
    gpu: int
    memory: int = 0


@dataclass
class c_nvmlMemory_t:
    total: int
    free: int
    used: int


@dataclass
class nvmlPciInfo_t:
    domain: int
    bus: int
    device: int


GPUS = [Gpu(**fields) for fields in json.loads(os.environ.get("STANDIN_GPUS", "[]"))]
DRIVER_ERROR: int | None = None
"""The code that `nvmlInit` raises."""
_initialized = False


def nvmlInit():
    global _initialized
    if DRIVER_ERROR is not None:
        raise NVMLError(DRIVER_ERROR)
    _initialized = True


def nvmlDeviceGetCount():
    if not _initialized:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    return len(GPUS)


def nvmlDeviceGetHandleByIndex(index):
    _call(GPUS[index], "HandleByIndex")
    return GPUS[index]


def nvmlDeviceGetPciInfo(handle):
    _call(handle, "PciInfo")
    return nvmlPciInfo_t(0, handle.bus, 0)


def nvmlDeviceGetName(handle):
    _call(handle, "Name")
    return handle.name


def nvmlDeviceGetUtilizationRates(handle):
    _call(handle, "UtilizationRates")
    return c_nvmlUtilization_t(handle.utilization)


def nvmlDeviceGetMemoryInfo(handle):
    _call(handle, "MemoryInfo")
    free = handle.memory_total - handle.memory_used
    return c_nvmlMemory_t(handle.memory_total, free, handle.memory_used)


def nvmlDeviceGetPowerUsage(handle):
    _call(handle, "PowerUsage")
    return handle.power


def nvmlDeviceGetEnforcedPowerLimit(handle):
    _call(handle, "EnforcedPowerLimit")
    return handle.power_limit


def nvmlDeviceGetClockInfo(handle, type):
    _call(handle, "ClockInfo")
    return handle.sm_clock if type == NVML_CLOCK_SM else handle.memory_clock


def nvmlDeviceGetMaxClockInfo(handle, type):
    _call(handle, "MaxClockInfo")
    return handle.max_sm_clock if type == NVML_CLOCK_SM else handle.max_memory_clock


def nvmlDeviceGetTemperature(handle, sensor):
    _call(handle, "Temperature")
    return handle.temperature


def nvmlDeviceGetTemperatureV(handle, sensor):
    _call(handle, "TemperatureV")
    return handle.temperature


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    _call(handle, "CurrentClocksEventReasons")
    return handle.reasons


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    _call(handle, "CurrentClocksThrottleReasons")
    return handle.reasons


def _call(gpu, name):
    """Count the call, and raise its error."""
    gpu.calls.append(name)
    if gpu.lost_after is not None and len(gpu.calls) > gpu.lost_after:
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    if name in gpu.errors:
        raise NVMLError(gpu.errors[name])
