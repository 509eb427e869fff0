"""The Intel MPI Benchmarks: a table per test and number of ranks."""

from __future__ import annotations

from typing import Any

from spbench_core.programs.presets.preset import Preset

_US = {"unit": "us", "better": "lower"}
_TITLES = {
    "bytes": "#bytes",
    "_": "#repetitions",
    "time_us": r"t\[usec\]",
    "min_us": r"t_min\[usec\]",
    "max_us": r"t_max\[usec\]",
    "average_us": r"t_avg\[usec\]",
    "bandwidth_gb_s": "Mbytes/sec",
    "messages_per_s": "Msg/sec",
}
_METRICS = {
    "time_us": _US,
    "min_us": _US,
    "max_us": _US,
    "average_us": _US,
    "bandwidth_gb_s": {"unit": "GB/s", "better": "higher", "scale": 1e-3},
    "messages_per_s": {"unit": "1/s", "better": "higher"},
}


def _table(*columns: str) -> dict[str, Any]:
    return {
        "header": r"^\s*" + r"\s+".join(_TITLES[name] for name in columns) + r"\s*$",
        "rows": r"^\s+\d+(\s+\d[\d.]*)+\s*$",
        "columns": list(columns),
        "labels": [name for name in columns if name == "bytes"],
        "metrics": {name: _METRICS[name] for name in columns if name in _METRICS},
        "context": [r"^# Benchmarking (?P<test>\w+)", r"^# #processes = (?P<ranks>\d+)"],
        "optional": True,
    }


PRESETS = (
    Preset(
        name="imb",
        summary="the Intel MPI Benchmarks' ping-pong, collectives and their kin",
        argv=("IMB-MPI1", "PingPong", "Allreduce"),
        expects={
            "table": [
                _table("bytes", "_", "time_us", "bandwidth_gb_s"),
                _table("bytes", "_", "min_us", "max_us", "average_us"),
                _table("bytes", "_", "min_us", "max_us", "average_us", "bandwidth_gb_s"),
                _table("bytes", "_", "bandwidth_gb_s", "messages_per_s"),
                _table("_", "min_us", "max_us", "average_us"),
            ],
            "must": [r"^\s*(#bytes )?#repetitions\s", "^# All processes entering MPI_Finalize"],
        },
        versions=("2021.11",),
    ),
)
