"""The stand-in for nvidia-ml-py, compared with the package where that exists."""

import inspect

import pytest

from spbench_core.events.gpu_readings import GpuReading
from spbench_workers.gpu_load import _REASON_BY_BIT, open_meters
from standins.nvml import pynvml as standin

pynvml = pytest.importorskip("pynvml")

FUNCTIONS = [name for name in dir(standin) if name.startswith("nvml") and name != "nvmlPciInfo_t"]
CONSTANTS = [name for name in dir(standin) if name.startswith("NVML_")]
ERRORS = [name for name in dir(standin) if name.startswith("NVMLError")]
STRUCTURES = ("c_nvmlUtilization_t", "c_nvmlMemory_t", "nvmlPciInfo_t")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_same_required_arguments(name):
    def list_required(function):
        parameters = inspect.signature(function).parameters.values()
        return [item.name for item in parameters if item.default is item.empty]

    assert list_required(getattr(standin, name)) == list_required(getattr(pynvml, name))


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_equal(name):
    assert getattr(standin, name) == getattr(pynvml, name)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_same_classes(name):
    error = getattr(pynvml, name)
    assert issubclass(error, pynvml.NVMLError)


@pytest.mark.parametrize("code", [getattr(standin, n) for n in CONSTANTS if "ERROR" in n])
def test_codes_raise_the_same_classes(code):
    assert type(standin.NVMLError(code)).__name__ == type(pynvml.NVMLError(code)).__name__
    assert standin.NVMLError(code).value == pynvml.NVMLError(code).value


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_have_the_fields(name):
    fields = {field for field, _ in getattr(pynvml, name)._fields_}
    assert set(getattr(standin, name).__dataclass_fields__) <= fields


def test_bits_are_those_of_the_package():
    names = [name for name in dir(pynvml) if name.startswith("nvmlClocksThrottleReason")]
    assert set(_REASON_BY_BIT) <= {getattr(pynvml, name) for name in names}


class FakeLibrary:
    """A library of the driver with one GPU, of which the power is not supported."""

    def nvmlInitWithFlags(self, flags):  # noqa: N802 - the library's own name
        return 0

    def __getattr__(self, name):
        return lambda *arguments: self.call(name.removesuffix("_v2").removesuffix("_v3"), arguments)

    def call(self, name, arguments):
        if name == "nvmlDeviceGetPowerUsage":
            return standin.NVML_ERROR_NOT_SUPPORTED
        if name == "nvmlDeviceGetName":
            arguments[1].value = b"NVIDIA H200"
            return 0
        values = {
            "nvmlDeviceGetCount": {"value": 1},
            "nvmlDeviceGetHandleByIndex": {},
            "nvmlDeviceGetPciInfo": {"domain": 0, "bus": 0x81, "device": 0},
            "nvmlDeviceGetMemoryInfo": {"total": 8 << 30, "free": 6 << 30, "used": 2 << 30},
            "nvmlDeviceGetUtilizationRates": {"gpu": 50, "memory": 10},
            "nvmlDeviceGetEnforcedPowerLimit": {"value": 700_000},
            "nvmlDeviceGetClockInfo": {"value": 1200},
            "nvmlDeviceGetMaxClockInfo": {"value": 1980},
            "nvmlDeviceGetTemperature": {"value": 70},
            "nvmlDeviceGetCurrentClocksEventReasons": {"value": 0x4},
        }[name]
        for field, value in values.items():
            setattr(arguments[-1]._obj, field, value)
        return 0


def test_reader_works_with_the_package(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", FakeLibrary())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    (meter,) = open_meters()
    assert meter.facts == GpuReading(
        0,
        address="0000:81:00.0",
        name="NVIDIA H200",
        memory_total_bytes=8 << 30,
        power_limit_w=700.0,
        max_sm_clock_mhz=1980,
        max_memory_clock_mhz=1980,
    )
    assert meter.read() == GpuReading(
        0,
        utilization=0.5,
        memory_used_bytes=2 << 30,
        sm_clock_mhz=1200,
        memory_clock_mhz=1200,
        temperature_c=70,
        throttle_reasons=("power cap",),
    )
