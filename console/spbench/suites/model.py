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
_REFERENCE = "the expected value, in the metric's unit"
_LOWER = "the allowed deviation below the reference, as a share: -0.1 is 10 %"
_UPPER = "the allowed deviation above the reference, as a share: 0.05 is 5 %"
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
        description="the largest allowed value: a number, or like 1.1 * case(NAME).time_ms.p50",
    )
    min: Limit | SkipJsonSchema[None] = Field(
        default=None,
        description="the smallest allowed value: a number, or like 0.9 * case(NAME).time_ms.p50",
    )
    reference: Annotated[float, Field(gt=0)] | SkipJsonSchema[None] = Field(
        default=None, examples=[0.35], description=_REFERENCE
    )
    lower: _Lower | SkipJsonSchema[None] = Field(default=None, examples=[-0.1], description=_LOWER)
    upper: _Upper | SkipJsonSchema[None] = Field(default=None, examples=[0.05], description=_UPPER)
    systems: dict[Name, ReferenceEntry] = Field(
        default={},
        min_length=1,
        description="the reference of each system, by name; --system chooses one",
    )


class UntilEntry(StrictModel):
    """The key ``until:``; it repeats a case in further launches."""

    interval: float = Field(
        gt=0,
        lt=1,
        description="the largest 95 % interval of the median time, as a share of it: 0.02 is 2 %",
    )
    max_time: float = Field(
        gt=0, description="the longest time of all launches of the case, in seconds"
    )


class ScaleEntry(StrictModel):
    """The key ``scale:``; it runs a case on several numbers of ranks."""

    np: list[Annotated[int, Field(ge=1)]] = Field(
        min_length=2, max_length=MAX_RANK_COUNTS, description="numbers of ranks, in ascending order"
    )
    work: ScalingMode = Field(
        description="the work that stays the same: in total (strong), or per rank (weak)"
    )
    by: str | SkipJsonSchema[None] = Field(
        default=None,
        description="the parameter that changes with the number of ranks, if there are several",
    )


_Ranks = Annotated[
    int | None, Field(ge=1, description="number of ranks, which must fit the parameters")
]
_Params = Annotated[dict[str, Any], Field(description="parameters with one value")]
_PerHost = Annotated[
    bool | Annotated[int, Field(ge=1, le=MAX_HOSTS_AT_ONCE)],
    Field(
        description="run a separate job on each host at the same time; a number limits the hosts"
    ),
]
_Scale = Annotated[
    ScaleEntry | SkipJsonSchema[None],
    Field(description="run the case on several numbers of ranks, and compute its efficiency"),
]
_Repeat = Annotated[
    int, Field(ge=1, le=MAX_REPEATS, description="number of times that the case runs")
]
_Until = Annotated[
    UntilEntry | SkipJsonSchema[None],
    Field(description="repeat until the median is precise enough, or the time is over"),
]
_Expect = Annotated[
    dict[str, Bound], Field(description="expectations, by metric or metric.statistic")
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

    name: Name = Field(description="unique in the suite")
    benchmark: str = Field(description="a benchmark that `spbench benchmarks` lists")
    np: _Ranks = None
    params: _Params = Field(default={})
    matrix: SweptLists = Field(
        default={}, description="parameters with lists of values; all combinations run"
    )
    zip: SweptLists = Field(
        default={}, description="parameters with lists of equal length, which change together"
    )
    exclude: list[dict[str, Any]] = Field(
        default=[], description="combinations to leave out: swept keys, each with one value"
    )
    per_host: _PerHost = False
    scale: _Scale = None
    repeat: _Repeat = 1
    until: _Until = None
    expect: _Expect = Field(default={})
    launch: LaunchSettings = Field(
        default=LaunchSettings(), description="launch settings that differ from those of the suite"
    )


class SuiteFile(StrictModel):
    """A whole suite file."""

    schema_: Literal["spbench.suite/1"] = Field(alias="schema", description="the format")
    name: Name = Field(description="the suite's name")
    description: str = Field(default="", description="the purpose of the suite")
    launch: SuiteLaunch = Field(default=SuiteLaunch(), description="launch settings of its jobs")
    order: RepeatOrder = Field(
        default="interleaved",
        description="repeats in separate launches with interleaved jobs, or together in one",
    )
    defaults: CaseDefaults = Field(
        default=CaseDefaults(), description="values for every case that does not set them"
    )
    cases: list[CaseEntry] = Field(min_length=1, description="the benchmarks to run")


def merge_settings(suite: LaunchSettings, case: LaunchSettings) -> LaunchSettings:
    """Return the suite's launch settings, updated by those of a case; ``env`` by name."""
    changes = {name: getattr(case, name) for name in case.model_fields_set}
    if "env" in changes:
        changes["env"] = suite.env | case.env
    return suite.model_copy(update=changes)
