"""The load of GPUs that one rank per host reports, with a stand-in for NVML."""

import queue
import sys
import time

import pytest

from spbench_core.events import rank_events
from spbench_core.events.gpu_readings import MAX_GPUS, GpuReading, ThrottleReason
from spbench_workers import gpu_load
from spbench_workers.channel.base import encode_event
from spbench_workers.gpu_load import (
    GpuLoad,
    find_missing_package,
    open_meters,
    translate_throttle_reasons,
)
from standins.nvml import pynvml
from standins.nvml.pynvml import (
    NVML_ERROR_DRIVER_NOT_LOADED,
    NVML_ERROR_FUNCTION_NOT_FOUND,
    NVML_ERROR_GPU_IS_LOST,
    NVML_ERROR_LIBRARY_NOT_FOUND,
    NVML_ERROR_NO_PERMISSION,
    NVML_ERROR_NOT_SUPPORTED,
    NVML_ERROR_UNKNOWN,
    Gpu,
)

HEARTBEAT_BYTES_PER_GPU = 220
FIRST_HEARTBEAT_BYTES_PER_GPU = 400


@pytest.fixture
def set_gpus(monkeypatch):
    """Return a function that sets the simulated GPUs of this host."""
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setattr(pynvml, "DRIVER_ERROR", None)
    monkeypatch.setattr(pynvml, "GPUS", [])

    def set_all(*gpus):
        pynvml.GPUS[:] = gpus
        return open_meters()

    return set_all


def test_reads_all_values_in_base_units(set_gpus):
    (meter,) = set_gpus(Gpu(reasons=0x4))
    assert meter.facts == GpuReading(
        0,
        address="0000:81:00.0",
        name="NVIDIA H200",
        memory_total_bytes=141 << 30,
        power_limit_w=700.0,
        max_sm_clock_mhz=1980,
        max_memory_clock_mhz=3201,
    )
    assert meter.read() == GpuReading(
        0,
        utilization=0.97,
        memory_used_bytes=60 << 30,
        power_w=650.0,
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=61,
        throttle_reasons=(ThrottleReason.POWER_CAP,),
    )


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("PciInfo", ["address"]),
        ("Name", ["name"]),
        ("UtilizationRates", ["utilization"]),
        ("MemoryInfo", ["memory_used_bytes", "memory_total_bytes"]),
        ("PowerUsage", ["power_w"]),
        ("EnforcedPowerLimit", ["power_limit_w"]),
        ("ClockInfo", ["sm_clock_mhz", "memory_clock_mhz"]),
        ("MaxClockInfo", ["max_sm_clock_mhz", "max_memory_clock_mhz"]),
    ],
)
@pytest.mark.parametrize("code", [NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN])
def test_omits_each_value_that_fails(set_gpus, function, names, code):
    (meter,) = set_gpus(Gpu(errors={function: code}))
    fields = meter.facts.to_fields() | meter.read().to_fields()
    (complete,) = set_gpus(Gpu())
    expected = complete.facts.to_fields() | complete.read().to_fields()
    assert fields == {name: value for name, value in expected.items() if name not in names}


def test_calls_an_unsupported_function_only_once(set_gpus):
    (meter,) = set_gpus(Gpu(errors={"PowerUsage": NVML_ERROR_NOT_SUPPORTED}))
    meter.read()
    meter.read()
    assert meter.handle.calls.count("PowerUsage") == 1
    assert meter.handle.calls.count("UtilizationRates") == 2


def test_repeats_a_call_that_failed_by_chance(set_gpus):
    (meter,) = set_gpus(Gpu(errors={"PowerUsage": NVML_ERROR_UNKNOWN}))
    assert meter.read().power_w is None
    meter.handle.errors.clear()
    assert meter.read().power_w == 650.0


@pytest.mark.parametrize("code", [NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND])
def test_takes_other_names_of_functions(set_gpus, code):
    errors = {"CurrentClocksEventReasons": code, "Temperature": code}
    (meter,) = set_gpus(Gpu(errors=errors, reasons=0x20))
    reading = meter.read()
    assert reading.throttle_reasons == (ThrottleReason.THERMAL,)
    assert reading.temperature_c == 61


def test_treats_values_that_nvml_marks_as_unavailable_as_unknown(set_gpus):
    (meter,) = set_gpus(Gpu(power=0xFFFF_FFFF, memory_used=0xFFFF_FFFF_FFFF_FFFF))
    reading = meter.read()
    assert reading.power_w is None
    assert reading.memory_used_bytes is None


def test_reports_a_gpu_that_is_lost_during_the_run(set_gpus):
    first, second = set_gpus(Gpu(bus=1, lost_after=10), Gpu(bus=2))
    assert first.read().lost or first.read().lost
    assert first.read() == GpuReading(0, lost=True)
    assert second.read().utilization == 0.97


def test_reports_a_gpu_that_was_lost_before(set_gpus):
    (meter,) = set_gpus(Gpu(errors={"HandleByIndex": NVML_ERROR_GPU_IS_LOST}))
    assert meter.read() == GpuReading(0, lost=True)


def test_leaves_out_a_gpu_that_the_process_may_not_read(set_gpus):
    meters = set_gpus(Gpu(errors={"HandleByIndex": NVML_ERROR_NO_PERMISSION}), Gpu(bus=2))
    assert [meter.facts.index for meter in meters] == [1]


@pytest.mark.parametrize("code", [NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED])
def test_has_no_readings_without_a_driver(set_gpus, monkeypatch, code):
    monkeypatch.setattr(pynvml, "DRIVER_ERROR", code)
    assert set_gpus(Gpu()) == []


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x0, []),
        (0x1, []),
        (0x2 | 0x100, []),
        (0x4, ["power cap"]),
        (0x8, ["hardware slowdown"]),
        (0x8 | 0x40, ["hardware thermal"]),
        (0x8 | 0x80, ["power brake"]),
        (0x4 | 0x10 | 0x20, ["thermal", "power cap", "sync boost"]),
        (0x200 | 0x400 | 0x8000, ["reliability", "board limit"]),
    ],
)
def test_translates_throttle_reasons(bits, reasons):
    assert translate_throttle_reasons(bits) == reasons


def wait_for_readings(load):
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        if readings := load():
            return readings
        time.sleep(0.01)
    raise AssertionError("no reading came")


def test_sends_facts_only_once(set_gpus, monkeypatch):
    set_gpus(Gpu())
    monkeypatch.setattr(gpu_load, "HEARTBEAT_INTERVAL", 0.01)
    load = GpuLoad()
    assert wait_for_readings(load)[0]["name"] == "NVIDIA H200"
    later = wait_for_readings(load)[0]
    assert "name" not in later
    assert later["utilization"] == 0.97


def test_a_slow_driver_delays_no_heartbeat(set_gpus, monkeypatch):
    set_gpus(Gpu())
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: time.sleep(2.0))
    started = time.monotonic()
    assert GpuLoad()() == []
    assert time.monotonic() - started < 1.0


def test_reports_once_why_readings_have_ended(set_gpus, monkeypatch, messages):
    def fail():
        raise OSError("libnvidia-ml.so.1: invalid ELF header")

    set_gpus(Gpu())
    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    reports = queue.SimpleQueue()
    load = GpuLoad(reports.put)
    messages.check(reports.get(timeout=10.0))
    assert reports.empty()
    assert load() == []


def test_names_the_extra_only_on_a_host_with_gpus(monkeypatch, messages):
    monkeypatch.setattr(gpu_load, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu_load, "describe_device", lambda: "cpu")
    assert find_missing_package() is None
    monkeypatch.setattr(gpu_load, "describe_device", lambda: "2 x NVIDIA H200")
    messages.check(find_missing_package())
    assert GpuLoad()() == []


def test_size_of_a_heartbeat_is_bounded(set_gpus):
    meters = set_gpus(*(Gpu(bus=bus, reasons=0x8 | 0x20) for bus in range(20)))
    assert len(meters) == MAX_GPUS
    line = encode_event("heartbeat", 0, 1, {"gpus": [meter.read().to_fields() for meter in meters]})
    assert len(line) <= 100 + MAX_GPUS * HEARTBEAT_BYTES_PER_GPU
    rank_events.decode(line)


def test_size_of_the_first_heartbeat_is_bounded(set_gpus):
    meters = set_gpus(*(Gpu(bus=bus, reasons=0x8 | 0x20) for bus in range(20)))
    readings = [meter.facts.to_fields() | meter.read().to_fields() for meter in meters]
    line = encode_event("heartbeat", 0, 1, {"gpus": readings})
    assert len(line) > 100 + MAX_GPUS * HEARTBEAT_BYTES_PER_GPU
    assert len(line) <= 100 + MAX_GPUS * FIRST_HEARTBEAT_BYTES_PER_GPU
