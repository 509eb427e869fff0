"""The OSU micro-benchmarks: latency, bandwidth, rates and collectives.

Each prints a table over message sizes. Its columns depend on the version and on the options: ``-f``
adds the fastest and the slowest rank and the iterations, ``-c`` (since version 6) the result of the
validation, ``-z`` (since version 7) percentiles. The line above a table identifies its columns.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from spbench_core.programs.presets.preset import Preset

_US = {"unit": "us", "better": "lower"}
_GB_S = {"unit": "GB/s", "better": "higher", "scale": 1e-3}

_FULL = {"Min Latency(us)": "min_us", "Max Latency(us)": "max_us", "Iterations": "_"}
_VALIDATION = {"Validation": "validation"}
_TAIL_US = {f"P{p} Tail Lat(us)": f"p{p}_us" for p in (50, 90, 99)}
_TAIL_GB_S = {f"P{p} Tail BW(MB/s)": f"p{p}_gb_s" for p in (50, 90, 99)}

_SIZE = {"# Size": "bytes"}
_LATENCY = {"Latency (us)": "latency_us"}
_AVERAGE = {"Avg Latency(us)": "latency_us"}
_BANDWIDTH = {"Bandwidth (MB/s)": "bandwidth_gb_s"}
_RATE = {"MB/s": "bandwidth_gb_s", "Messages/s": "messages_per_s"}

_ANY_HEADER = r"^# (Size\s|Avg Latency)"

_METRICS = {
    **dict.fromkeys(("latency_us", "min_us", "max_us", "p50_us", "p90_us", "p99_us"), _US),
    **dict.fromkeys(("bandwidth_gb_s", "p50_gb_s", "p90_gb_s", "p99_gb_s"), _GB_S),
    "messages_per_s": {"unit": "1/s", "better": "higher"},
}


def _make_tables(first: dict[str, str], *more: dict[str, str]) -> list[dict[str, Any]]:
    """Return a table for each choice of optional columns."""
    return [
        _make_table({title: name for part in (first, *choice) for title, name in part.items()})
        for count in range(len(more) + 1)
        for choice in itertools.combinations(more, count)
    ]


def _make_table(columns: dict[str, str]) -> dict[str, Any]:
    labels = [name for name in columns.values() if name == "bytes"]
    return {
        "header": r"^\s*" + r"\s+".join(re.escape(title) for title in columns) + r"\s*$",
        "rows": r"^\d+ {2,}\S" if labels else r"^ {2,}[\d.]+(\s|$)",
        "columns": list(columns.values()),
        "labels": labels,
        "metrics": {name: _METRICS[name] for name in columns.values() if name in _METRICS},
        "must": {name: "Pass" for name in columns.values() if name == "validation"},
        "optional": True,
    }


def _make_preset(
    name: str,
    summary: str,
    versions: tuple[str, ...],
    tables: list[dict[str, Any]],
    *,
    np: int | None = None,
    full: bool = False,
) -> Preset:
    return Preset(
        name=name,
        summary=summary,
        argv=(name, "-f") if full else (name,),
        expects={
            "table": tables,
            "must": [r"^# OSU MPI.* Test v", _ANY_HEADER],
            "never": ["DATA VALIDATION ERROR"],
        },
        versions=versions,
        np=np,
    )


_LATENCIES = [
    *_make_tables(_SIZE | _AVERAGE, _VALIDATION, _TAIL_US),
    *_make_tables(_SIZE | _LATENCY, _VALIDATION, _TAIL_US),
]
_BANDWIDTHS = _make_tables(_SIZE | _BANDWIDTH, _VALIDATION, _TAIL_GB_S)
_RATES = _make_tables(_SIZE | _RATE, _VALIDATION, _TAIL_GB_S)
_COLLECTIVES = _make_tables(_SIZE | _AVERAGE, _FULL, _VALIDATION, _TAIL_US)
_BARRIERS = _make_tables({"# Avg Latency(us)": "latency_us"}, _FULL, _VALIDATION, _TAIL_US)


def _make_collective_preset(
    name: str, summary: str, versions: tuple[str, ...] = ("5.5", "7.4")
) -> Preset:
    return _make_preset(name, summary, versions, _COLLECTIVES, full=True)


PRESETS = (
    _make_preset(
        "osu_latency",
        "one-way time of messages between two ranks, over sizes",
        ("5.5", "6.1", "7.4"),
        _LATENCIES,
        np=2,
    ),
    _make_preset(
        "osu_multi_lat",
        "one-way time of messages in several pairs of ranks at once",
        ("5.5", "7.4"),
        _LATENCIES,
    ),
    _make_preset(
        "osu_bw",
        "bandwidth from one rank to another, over sizes",
        ("5.5", "6.2", "7.4", "7.5.1"),
        _BANDWIDTHS,
        np=2,
    ),
    _make_preset(
        "osu_bibw",
        "bandwidth between two ranks, both ways at once",
        ("5.5", "7.4"),
        _BANDWIDTHS,
        np=2,
    ),
    _make_preset(
        "osu_mbw_mr",
        "bandwidth and message rate of several pairs at once",
        ("5.5", "7.4"),
        _RATES,
    ),
    _make_collective_preset(
        "osu_allreduce", "the MPI's allreduce, over sizes", ("5.5", "6.2", "7.4")
    ),
    _make_collective_preset("osu_reduce", "the MPI's reduce, over sizes", ("5.5", "6.2", "7.4")),
    _make_collective_preset("osu_reduce_scatter", "the MPI's reduce-scatter, over sizes"),
    _make_collective_preset("osu_allgather", "the MPI's allgather, over sizes"),
    _make_collective_preset("osu_alltoall", "the MPI's all-to-all, over sizes"),
    _make_collective_preset("osu_bcast", "the MPI's broadcast, over sizes"),
    _make_collective_preset("osu_gather", "the MPI's gather, over sizes"),
    _make_collective_preset("osu_scatter", "the MPI's scatter, over sizes"),
    _make_preset("osu_barrier", "the MPI's barrier", ("5.5", "7.4"), _BARRIERS, full=True),
)
