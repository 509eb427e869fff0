"""The file of a baseline, ``spbench.baseline/1``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spbench.suites.settings import build_json_schema
from spbench_core.events.run_events import Better

SCHEMA = "spbench.baseline/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, frozen=True)


class BaselineMetric(_Part):
    """A metric of a case: the medians of its launches, and the range of its samples."""

    unit: str
    better: Better
    value: float = Field(description="the median")
    launches: list[float] = Field(min_length=1, description="the median of each launch")
    fastest: list[float] = Field(
        default=[], description="the shortest iteration of each launch, of time_ms alone"
    )
    n: int = Field(ge=1, description="the number of samples")
    min: float
    max: float


class BaselineCase(_Part):
    """A case with its metrics."""

    id: str
    name: str
    benchmark: str
    version: int = Field(default=1, description="the version of the benchmark")
    params: dict[str, Any]
    np: int = Field(ge=1)
    runs: list[str] = Field(default=[], description="the runs whose launches these are")
    noisy: str | None = Field(
        default=None, description="why its times are not the hardware's alone; null: they are"
    )
    crowded: bool | None = Field(
        default=None, description="whether it had more ranks than cores; null: unknown"
    )
    checks: list[str] = Field(default=[], description="the names of the checks that it passed")
    reference_ms: float | None = Field(
        default=None, description="the reference of time_ms from the same job; null: unknown"
    )
    metrics: dict[str, BaselineMetric]


class BaselineFile(_Part):
    """A baseline: the cases with results of one run or of several."""

    schema_: Literal["spbench.baseline/1"] = Field(default="spbench.baseline/1", alias="schema")
    name: str
    run: str = Field(description="the run that it was made of")
    runs: list[str] = Field(default=[], description="all runs that it has launches of")
    suite: str
    spbench: str | None = Field(default=None, description="the version that measured")
    environment: dict[str, Any] = Field(
        default={}, description="the fingerprint of the ranks' machines, as a report has it"
    )
    cases: list[BaselineCase]


def baseline_schema() -> dict[str, Any]:
    """Return the JSON Schema of a baseline."""
    return build_json_schema(BaselineFile, mode="serialization")
