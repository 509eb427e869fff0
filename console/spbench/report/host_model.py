"""The loads of hosts and GPUs in a report, and the base of all its parts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ReportPart(BaseModel):
    """A part of a report."""

    # Parts that are built from events are not validated until the report is written.
    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, frozen=True, revalidate_instances="always"
    )


class LoadPart(ReportPart):
    """One quantity of a host's load, over its readings of a second each."""

    mean: float
    most: float


class GpuPart(ReportPart):
    """A GPU over a run, or over the timed part of a case; unknown values are null."""

    index: int = Field(description="its number by NVML, which counts all GPUs of the host")
    address: str | None = Field(default=None, description="its PCI address")
    name: str | None = None
    lost: bool = Field(description="whether the driver has lost it")
    readings: int = Field(description="the number of readings, about one per second")
    mean_utilization: float | None = Field(
        default=None, description="the mean share of the time in which a kernel ran"
    )
    most_memory_bytes: float | None = None
    memory_bytes: float | None = Field(default=None, description="its whole memory")
    mean_power_w: float | None = None
    power_limit_w: float | None = None
    min_sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = Field(
        default=None, description="the clock rate that it can have"
    )
    max_temperature_c: float | None = None
    throttled: dict[str, float] | None = Field(
        default=None, description="the share of the time with each throttle reason"
    )


class CaseGpuPart(GpuPart):
    """A GPU of a case's ranks while the case was timed."""

    host: str


class HostPart(ReportPart):
    """The load of a host in the run: shares of its capacity, and bytes per second."""

    host: str
    cpu: LoadPart | None = None
    memory: LoadPart | None = None
    received: LoadPart | None = None
    sent: LoadPart | None = None
    gpu: LoadPart | None = None
    gpus: list[GpuPart] = []
