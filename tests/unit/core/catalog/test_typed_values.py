"""Types of parameter values, compared with the dataclasses of benchmarks."""

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from spbench.suites.loader import load_suite_file
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.typed_params import read_params
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.compute.entry import (
    BurnParams,
    ConvParams,
    GemmParams,
    NoiseParams,
)
from spbench_workers.benchmarks.halo.params import (
    ComputeParams,
    ExchangeParams,
    FusedParams,
    TileParams,
    TransportParams,
)
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.link.entry import (
    BarrierParams,
    BisectionParams,
    EffectiveParams,
    LoopParams,
    PingpongParams,
    RingParams,
)
from spbench_workers.benchmarks.memory.entry import CopyParams
from spbench_workers.benchmarks.model.params import (
    AmoebanetParams,
    ModelParams,
    OwnNetworkParams,
    ResnetParams,
)
from spbench_workers.benchmarks.model.profile.entry import ProfileParams
from spbench_workers.benchmarks.program.entry import ProgramParams
from support.paths import ROOT

CLASSES = {
    "halo.exchange": (ExchangeParams, TileParams, TransportParams),
    "halo.compute": (ComputeParams, TileParams, TransportParams),
    "halo.fused": (FusedParams, TileParams, TransportParams),
    "link.pingpong": (PingpongParams, LoopParams),
    "link.ring": (RingParams, LoopParams),
    "link.bisection": (BisectionParams, LoopParams),
    "link.effective": (EffectiveParams, LoopParams),
    "link.barrier": (BarrierParams, LoopParams),
    "memory.copy": (CopyParams,),
    "compute.gemm": (GemmParams,),
    "compute.conv": (ConvParams,),
    "compute.burn": (BurnParams,),
    "compute.noise": (NoiseParams,),
    "allreduce.sweep": (SweepParams,),
    "kvstore.push_pull": (PushPullParams,),
    "model.resnet": (ResnetParams, ModelParams),
    "model.amoebanet": (AmoebanetParams, ModelParams),
    "model.network": (OwnNetworkParams, ModelParams),
    "model.profile": (ProfileParams,),
    "program.run": (ProgramParams,),
}
NETWORK = {"network": "torchvision.models:resnet18"}
OVERRIDES: dict[str, list[dict[str, Any]]] = {
    "link.pingpong": [{"device": "cuda"}],
    "memory.copy": [{"device": "cuda", "path": "peer"}],
    "allreduce.sweep": [
        {"collective": name} for name in ("allgather", "broadcast", "alltoall", "reduce_scatter")
    ],
    "kvstore.push_pull": [
        {"kv_store": "allreduce"},
        {"kv_store": "dist_sync"},
        {"device_ids": [0, 1], "device": "cuda"},
        {"network": "lenet", "gc_type": "2bit"},
    ],
    "model.profile": [{"model": "torchvision.models:resnet18", "image_size": 64}],
    "program.run": [{"argv": ["true"]}, {"preset": "osu_latency", "argv": ["osu_latency"]}],
}
SCHEMES: list[dict[str, Any]] = [
    {"scheme": scheme, "enable_evaluation": evaluation}
    for scheme in ("sequential", "lp", "sp", "gems")
    for evaluation in (True, False)
]
OVERRIDES["model.resnet"] = OVERRIDES["model.amoebanet"] = [{"baseline": False}, *SCHEMES]
OVERRIDES["model.network"] = [
    NETWORK,
    NETWORK | {"scheme": "sp"},
    NETWORK | {"scheme": "sequential"},
]


def matches_hint(value, hint):
    if hint is Any:
        return True
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        return any(matches_hint(value, member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(map(matches_hint, value, get_args(hint)))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(
            matches_hint(item, get_args(hint)[0]) for item in value
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def iterate_complete_params():
    """Yield (benchmark, parameters) of the shipped suites and of OVERRIDES."""
    for path in sorted((ROOT / "suites").glob("*.yaml")):
        for case in load_suite_file(path).cases:
            yield case.benchmark, dict(case.params)
    for name, variants in OVERRIDES.items():
        for overrides in ({}, *variants):
            if name in ("model.network", "program.run") and not overrides:
                continue
            _, params = BENCHMARKS[name].list_cases(overrides)[0]
            yield name, params


def test_each_benchmark_has_a_dataclass():
    assert set(CLASSES) == {name for name in BENCHMARKS if not BENCHMARKS[name].plugin}


def test_values_have_the_types_of_their_fields():
    mismatches = {
        f"{cls.__name__}.{field}: {hint} is {getattr(typed, field)!r} in {name}"
        for name, params in iterate_complete_params()
        for cls in CLASSES[name]
        for typed in [read_params(cls, params)]
        for field, hint in get_type_hints(cls).items()
        if not matches_hint(getattr(typed, field), hint)
    }
    assert not mismatches, "\n".join(sorted(mismatches))


@pytest.mark.parametrize(
    ("value", "hint"), [(None, int), (True, int), ("a", Literal["b"]), ((1, None), tuple[int, int])]
)
def test_detects_a_value_of_another_type(value, hint):
    assert not matches_hint(value, hint)
