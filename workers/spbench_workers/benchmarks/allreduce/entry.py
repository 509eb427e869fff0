"""Catalog of collectives over a range of sizes, by one or several algorithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, Ranks, make_time_metric
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.scaling import keep_params_weak_only
from spbench_core.catalog.shared_params import DEVICE, DTYPE, SEED
from spbench_core.catalog.typed_params import parameter, params_of, reuse_parameter
from spbench_core.catalog.work import Work, count_iterations, make_estimate
from spbench_workers.benchmarks.allreduce.sweep_sizes import sweep_sizes
from spbench_workers.collectives.base import FIXED_SIZES, ITEM_BYTES, LIBRARIES, ROOTED, SCHEDULED

POSITION = 50
"""Position of the family in lists of benchmarks."""


_CHECKED = 60
"""Iterations' worth of set-up and checks of a collective: fitting links, comparing results."""


def collective_work(params: SweepParams, np: int) -> Work:
    """Return the work of ``allreduce.sweep``: the algorithm, native, and checks."""
    size = float(params.size or 0)
    repeats = 2.0 * count_iterations(params) + _CHECKED
    steps = max(1.0, math.log2(max(2, np)))
    return Work(
        bytes=4.0 * np * size * repeats,
        messages=4.0 * steps * repeats,
        calls=1000.0 * np,
        seconds=0.05,
        memory=3.0 * np * size,
    )


COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "broadcast", "alltoall")
REDUCING = ("allreduce", "reduce_scatter")
OPS = ("sum", "prod", "max", "min")
_USED_BY: dict[str, tuple[str, ...]] = {
    "order": SCHEDULED,
    "rotate_roots": ROOTED,
    "group": ("two_level",),
    "chunks": ("chain",),
}
"""The algorithms that use a parameter."""
_RANGE = {"min_bytes": 8, "max_bytes": 1 << 20, "factor": 4.0}
_MOST_BYTES = 1 << 30


def _bytes(name: str, text: str) -> Param:
    return Param(name, "bytes", None, text, minimum=0, maximum=_MOST_BYTES)


def _resolve(params: Params) -> Params:
    names = params["algorithm"]
    names = [names] if isinstance(names, str) else names
    _check_collective(params, names)
    _check_use(params, names)
    _check_order(params, names)
    reduces = params["collective"] in REDUCING
    return params | {
        "algorithm": names[0] if len(names) == 1 else names,
        "op": (params["op"] or "sum") if reduces else None,
        "in_place": _resolve_in_place(params, names),
        **_sizes(params),
    }


def _resolve_in_place(params: Params, names: Sequence[str]) -> bool | None:
    """Return whether to reduce in place; None if the algorithms of a list differ.

    torch's allreduce by NCCL is always in place. Out of place, a copy precedes it.
    """
    if params["in_place"] is None and "nccl" in names:
        return True if len(names) == 1 else None
    return bool(params["in_place"])


def _check_collective(params: Params, names: Sequence[str]) -> None:
    collective = params["collective"]
    others = [name for name in names if name != "native"]
    if collective != "allreduce" and others:
        raise ParamError("algorithm", f"{others[0]} does no {collective}; only native does")
    if collective not in REDUCING and params["op"] is not None:
        raise ParamError("op", f"{collective} reduces nothing: leave op out")
    distributed = [name for name in names if name in ("gloo", "nccl")]
    if distributed and params["mode"] == "persistent":
        raise ParamError("mode", f"{distributed[0]} has no persistent mode; MPI has")
    if "nccl" in names and params["device"] == "cpu":
        raise ParamError("device", "nccl needs a GPU for each rank: device cuda or auto")


def _check_use(params: Params, names: Sequence[str]) -> None:
    for param, users in _USED_BY.items():
        is_set = params[param] not in (None, False)
        if is_set and not set(users) & set(names):
            raise ParamError(param, f"{param} does nothing for {', '.join(names)}: leave it out")


def _check_order(params: Params, names: Sequence[str]) -> None:
    order = params["order"]
    if order is None:
        return
    if sorted(order) != list(range(len(order))):
        raise ParamError("order", f"order must name each rank from 0 up once, not {order}")
    for name in names:
        if FIXED_SIZES.get(name, len(order)) != len(order):
            wrong = f"order names {len(order)} ranks, and {name} is drawn for {FIXED_SIZES[name]}"
            raise ParamError("order", wrong)


def _sizes(params: Params) -> Params:
    """Return the limits of the range with their defaults; nothing for a single size."""
    range_names = [name for name in _RANGE if params[name] is not None]
    size = params["size"]
    item = ITEM_BYTES[params["dtype"]]
    if size is None:
        limits = {name: params[name] if name in range_names else _RANGE[name] for name in _RANGE}
        if limits["min_bytes"] > limits["max_bytes"]:
            wrong = f"min_bytes {limits['min_bytes']} is more than max_bytes {limits['max_bytes']}"
            raise ParamError(range_names[0], wrong)
        return limits
    if range_names:
        raise ParamError("size", f"size is one size, and {range_names[0]} is of a range: give one")
    if size % item:
        raise ParamError("size", f"{size} bytes hold no whole number of {params['dtype']} elements")
    return {}


def _points(params: Params) -> list[Params]:
    """Return one point per algorithm and size, with only the parameters that vary."""
    names = params["algorithm"]
    size = params["size"]
    sizes: list[Params] = [{}]
    if size is None:
        item = ITEM_BYTES[params["dtype"]]
        limits = [params[name] for name in _RANGE]
        multiples = {number // item * item: None for number in sweep_sizes(*limits)}
        sizes = [{"size": number, **dict.fromkeys(_RANGE)} for number in multiples]
    algorithms: list[Params] = [{}]
    if not isinstance(names, str):
        algorithms = [{"algorithm": name, **_drop_other_params(name)} for name in names]
    return [algorithm | size for algorithm in algorithms for size in sizes]


def _drop_other_params(name: str) -> Params:
    """Return None for the parameters that only other algorithms of the list use."""
    return dict.fromkeys(param for param, users in _USED_BY.items() if name not in users)


def _ranks(params: Params) -> Ranks:
    name: Any = params["algorithm"]
    exact = FIXED_SIZES.get(name) if isinstance(name, str) else None
    order = params["order"]
    if order is None:
        return Ranks(exact=exact, params=("algorithm",))
    return Ranks(len(order), why=f"order names {len(order)}, one for each", params=("order",))


@dataclass(frozen=True, kw_only=True)
class SweepParams:
    """Parameters of ``allreduce.sweep``."""

    collective: str = parameter(
        "choice", "allreduce", "the collective operation", choices=COLLECTIVES
    )
    algorithm: str = parameter(
        "choices",
        "native",
        "implementation: MPI (native), an algorithm over messages, or torch.distributed; a "
        "list makes one case for each",
        choices=(*LIBRARIES, *SCHEDULED),
    )
    min_bytes: int | None = reuse_parameter(_bytes("min_bytes", "the smallest size; default 8"))
    max_bytes: int | None = reuse_parameter(_bytes("max_bytes", "the largest size; default 1MiB"))
    factor: float | None = parameter(
        "float", None, "factor between two sizes; default 4", minimum=1.01, maximum=1e9
    )
    size: int = reuse_parameter(_bytes("size", "one size instead of a range"))
    dtype: str = reuse_parameter(
        DTYPE,
        choices=tuple(ITEM_BYTES),
        spellings={
            "float": "fp32",
            "double": "fp64",
            "half": "fp16",
            "bfloat16": "bf16",
            "int": "int32",
        },
    )
    op: str | None = parameter("choice", None, "reduction; default sum", choices=OPS)
    mode: Literal["blocking", "persistent", "nonblocking"] = parameter(
        "choice",
        "blocking",
        "kind of the calls of MPI; nonblocking also measures the overlap with a computation",
        choices=("blocking", "persistent", "nonblocking"),
    )
    in_place: bool = parameter(
        "bool", None, "whether the result replaces the input of a rank; default: off, with nccl on"
    )
    order: list[int] | None = parameter(
        "ints", None, "order of the ranks in the algorithm, such as 0,2,1,3", minimum=0
    )
    rotate_roots: bool = parameter(
        "bool", False, "whether the next rank is the root in each iteration"
    )
    group: int | None = parameter("int", None, "ranks per group, for two_level", minimum=1)
    chunks: int | None = parameter(
        "int", None, "number of chunks, for chain", minimum=1, maximum=1 << 12
    )
    device: str = reuse_parameter(DEVICE)
    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))
    seed: int = reuse_parameter(SEED)


BENCHMARKS = (
    Benchmark(
        name="allreduce.sweep",
        summary=(
            "collectives over a range of sizes, by MPI and by own algorithms, compared with a model"
        ),
        params=params_of(SweepParams),
        metrics=(
            make_time_metric("one collective"),
            Metric("algbw_gb_s", "GB/s", "higher", "bytes divided by the time", "min"),
            Metric(
                "busbw_gb_s",
                "GB/s",
                "higher",
                "algbw times the share of the bytes that each link carries",
                "min",
            ),
            Metric(
                "wrong", "1", "lower", "number of wrong elements in all checks, on all ranks", "sum"
            ),
            Metric(
                "predicted_ms",
                "ms",
                "none",
                "time that the model of the links of this job predicts",
            ),
            Metric(
                "native_ms",
                "ms",
                "none",
                "time of the implementation of MPI, measured interleaved with this one",
                separate=True,
            ),
            Metric(
                "overlap", "1", "higher", "share of the collective that a computation hides", "min"
            ),
            Metric(
                "alpha_us", "us", "none", "time per message in the model of the links of this job"
            ),
            Metric("beta_ns", "ns/B", "none", "time per byte sent in the model", title="beta"),
            Metric("gamma_ns", "ns/B", "none", "time per reduced byte in the model", title="gamma"),
            Metric("count", "1", "none", "number of elements"),
            Metric("bytes_sent", "B", "none", "bytes that the busiest rank sends"),
            Metric("messages_sent", "1", "none", "messages that the busiest rank sends"),
            Metric("rounds", "1", "none", "number of rounds of messages"),
        ),
        checks=("exact", "bound", "identical", "inputs"),
        faults=("wrong-element",),
        resolve=_resolve,
        ranks=_ranks,
        scaled=keep_params_weak_only,
        points=_points,
        work=make_estimate(SweepParams, collective_work),
        own_lines=True,
    ),
)
