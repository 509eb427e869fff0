"""The model of a suite file: keys and types, without the catalog's rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from spbench.suites.case import (
    MAX_HOSTS_AT_ONCE,
    MAX_RANK_COUNTS,
    MAX_REPEATS,
    NAME_PATTERN,
    RepeatOrder,
)
from spbench.suites.settings import LaunchSettings, StrictModel, SuiteLaunch
from spbench_core.events.run_events import ScalingMode

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=100)]
SweptLists = dict[str, Annotated[list[Any], Field(min_length=1)]]


def _validate_expression(value: Any) -> Any:
    if type(value) is not str:
        raise PydanticCustomError("expression_type", "an expression")
    return value


Limit = float | Annotated[str, BeforeValidator(_validate_expression)]
"""A number, or an expression of metrics of cases, which is parsed later."""


_Lower = Annotated[float, Field(gt=-1, le=0)]
_Upper = Annotated[float, Field(ge=0)]
_REFERENCE = "the value that is expected, in the metric's unit"
_LOWER = "how far below the reference is allowed, as a share: -0.1 is 10 %"
_UPPER = "how far above the reference is allowed, as a share: 0.05 is 5 %"
_ONE_TOLERANCE: JsonDict = {"anyOf": [{"required": ["lower"]}, {"required": ["upper"]}]}


class ReferenceEntry(StrictModel):
    """The reference of one system, with the deviations that are allowed."""

    model_config = ConfigDict(json_schema_extra={**_ONE_TOLERANCE})

    reference: float = Field(gt=0, examples=[0.35], description=_REFERENCE)
    lower: _Lower | SkipJsonSchema[None] = Field(default=None, examples=[-0.1], description=_LOWER)
    upper: _Upper | SkipJsonSchema[None] = Field(default=None, examples=[0.05], description=_UPPER)


_WITHOUT_BOUNDS: JsonDict = {"max": False, "min": False}


class Bound(StrictModel):
    """One expectation: bounds, or a reference with tolerances.

    There can be a reference for each system. A bound is a number, or an expression of metrics of
    cases.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "dependentRequired": {"lower": ["reference"], "upper": ["reference"]},
            "dependentSchemas": {
                "reference": {"properties": {**_WITHOUT_BOUNDS}, **_ONE_TOLERANCE},
                "systems": {"properties": {**_WITHOUT_BOUNDS, "reference": False}},
            },
        }
    )

    max: Limit | SkipJsonSchema[None] = Field(
        default=None,
        description="the greatest value allowed: a number, or as 1.1 * case(NAME).time_ms.p50",
    )
    min: Limit | SkipJsonSchema[None] = Field(
        default=None,
        description="the least value allowed: a number, or as 0.9 * case(NAME).time_ms.p50",
    )
    reference: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        default=None, examples=[0.35], description=_REFERENCE
    )
    lower: _Lower | SkipJsonSchema[None] = Field(default=None, examples=[-0.1], description=_LOWER)
    upper: _Upper | SkipJsonSchema[None] = Field(default=None, examples=[0.05], description=_UPPER)
    systems: dict[Name, ReferenceEntry] = Field(
        default={}, min_length=1, description="system: its reference; --system chooses one"
    )


class UntilEntry(StrictModel):
    """The key ``until:``; it repeats a case in further launches."""

    interval: float = Field(
        gt=0, lt=1, description="the 95 % interval of the median time over the median: 0.02 is 2 %"
    )
    max_time: float = Field(gt=0, description="the seconds that the case's launches may take")


class ScaleEntry(StrictModel):
    """The key ``scale:``; it runs a case on several numbers of ranks."""

    np: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=2, max_length=MAX_RANK_COUNTS, description="numbers of ranks, rising"
    )
    work: ScalingMode = Field(
        description="what stays the same: the work of all (strong), or that of a rank (weak)"
    )
    by: str | SkipJsonSchema[None] = Field(
        default=None, description="the parameter that follows the ranks, where there are several"
    )


_Ranks = Annotated[int | None, Field(ge=1, description="ranks, where the benchmark cannot tell")]
_Params = Annotated[dict[str, Any], Field(description="parameters with one value")]
_PerHost = Annotated[
    bool | Annotated[int, Field(ge=1, le=MAX_HOSTS_AT_ONCE)],
    Field(description="a job of its own on each host, all at once; a number: at most so many"),
]
_Scale = Annotated[
    ScaleEntry | SkipJsonSchema[None],
    Field(description="the case on several numbers of ranks, with its efficiency"),
]
_Repeat = Annotated[int, Field(ge=1, le=MAX_REPEATS, description="how often each case runs")]
_Until = Annotated[
    UntilEntry | SkipJsonSchema[None],
    Field(description="repeat on until the median is known well, or for some time"),
]
_Expect = Annotated[
    dict[str, Bound], Field(description="metric or metric.statistic: what is expected of it")
]


class CaseDefaults(StrictModel):
    """The key ``defaults:``; each case inherits these values unless it sets them."""

    np: _Ranks = None
    params: _Params = Field(default={})
    per_host: _PerHost = False
    scale: _Scale = None
    repeat: _Repeat = 1
    until: _Until = None
    expect: _Expect = Field(default={})


class CaseEntry(StrictModel):
    """One entry of ``cases:``; it makes one case, or one for each point of its sweep."""

    name: Name = Field(description="the case's name, unlike any other in the suite")
    benchmark: str = Field(description="a benchmark of the catalog, as `spbench benchmarks` lists")
    np: _Ranks = None
    params: _Params = Field(default={})
    matrix: SweptLists = Field(
        default={}, description="parameters with lists of values: their product"
    )
    zip: SweptLists = Field(
        default={}, description="parameters with lists of equal length, taken in step"
    )
    exclude: list[dict[str, Any]] = Field(
        default=[], description="points to leave out: swept keys, each with one value"
    )
    per_host: _PerHost = False
    scale: _Scale = None
    repeat: _Repeat = 1
    until: _Until = None
    expect: _Expect = Field(default={})
    launch: LaunchSettings = Field(
        default=LaunchSettings(), description="launch settings that differ from the suite's"
    )


class SuiteFile(StrictModel):
    """A whole suite file."""

    schema_: Literal["spbench.suite/1"] = Field(alias="schema", description="the format")
    name: Name = Field(description="the suite's name")
    description: str = Field(default="", description="what the suite measures")
    launch: SuiteLaunch = Field(default=SuiteLaunch(), description="how its jobs are launched")
    order: RepeatOrder = Field(
        default="interleaved",
        description="repeats: each a launch of its own, the jobs by turns, or together in one",
    )
    defaults: CaseDefaults = Field(
        default=CaseDefaults(), description="values of every case that does not set them"
    )
    cases: list[CaseEntry] = Field(min_length=1, description="the benchmarks to run")


def merge_settings(suite: LaunchSettings, case: LaunchSettings) -> LaunchSettings:
    """Return the suite's launch settings, updated by those of a case; ``env`` by name."""
    changes = {name: getattr(case, name) for name in case.model_fields_set}
    if "env" in changes:
        changes["env"] = suite.env | case.env
    return suite.model_copy(update=changes)
