"""Programs that measure communication, in addition to the OSU micro-benchmarks.

The Intel MPI Benchmarks print a table per test and number of ranks. NVIDIA's nccl-tests print a
table of a collective over sizes, with its errors. Scripts of MXNet and MPI4DL exchange gradients
and halos.
"""

from __future__ import annotations

from typing import Any

from spbench_core.programs.presets.preset import Preset

_US = {"unit": "us", "better": "lower"}
_GB_S = {"unit": "GB/s", "better": "higher"}

_IMB_TITLES = {
    "bytes": "#bytes",
    "_": "#repetitions",
    "time_us": r"t\[usec\]",
    "min_us": r"t_min\[usec\]",
    "max_us": r"t_max\[usec\]",
    "average_us": r"t_avg\[usec\]",
    "bandwidth_gb_s": "Mbytes/sec",
    "messages_per_s": "Msg/sec",
}
_IMB_METRICS = {
    "time_us": _US,
    "min_us": _US,
    "max_us": _US,
    "average_us": _US,
    "bandwidth_gb_s": {"unit": "GB/s", "better": "higher", "scale": 1e-3},
    "messages_per_s": {"unit": "1/s", "better": "higher"},
}


def _make_imb_table(*columns: str) -> dict[str, Any]:
    return {
        "header": r"^\s*" + r"\s+".join(_IMB_TITLES[name] for name in columns) + r"\s*$",
        "rows": r"^\s+\d+(\s+\d[\d.]*)+\s*$",
        "columns": list(columns),
        "labels": [name for name in columns if name == "bytes"],
        "metrics": {name: _IMB_METRICS[name] for name in columns if name in _IMB_METRICS},
        "context": [r"^# Benchmarking (?P<test>\w+)", r"^# #processes = (?P<ranks>\d+)"],
        "optional": True,
    }


IMB = Preset(
    name="imb",
    summary="Intel MPI Benchmarks: ping-pong, collectives and similar patterns",
    argv=("IMB-MPI1", "PingPong", "Allreduce"),
    expects={
        "table": [
            _make_imb_table("bytes", "_", "time_us", "bandwidth_gb_s"),
            _make_imb_table("bytes", "_", "min_us", "max_us", "average_us"),
            _make_imb_table("bytes", "_", "min_us", "max_us", "average_us", "bandwidth_gb_s"),
            _make_imb_table("bytes", "_", "bandwidth_gb_s", "messages_per_s"),
            _make_imb_table("_", "min_us", "max_us", "average_us"),
        ],
        "must": [r"^\s*(#bytes )?#repetitions\s", "^# All processes entering MPI_Finalize"],
    },
    versions=("2021.11",),
)

# All programs of nccl-tests print the same table. Newer ones print their version; the version
# ``unnamed`` is one that does not.
_NCCL_EXPECTS = {
    "table": {
        "header": r"^#\s+size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw\s+#wrong",
        "rows": r"^\s*\d+\s+\d+\s+[a-z]\w*\s+\w+\s+-?\d+(\s|$)",
        "columns": [
            *("bytes", "_", "type", "redop", "_"),
            *("time_us", "algbw_gb_s", "busbw_gb_s", "wrong"),
            *("in_place_time_us", "in_place_algbw_gb_s", "in_place_busbw_gb_s", "in_place_wrong"),
        ],
        "labels": ["bytes", "type", "redop"],
        "metrics": {
            "time_us": _US,
            "algbw_gb_s": _GB_S,
            "busbw_gb_s": _GB_S,
            "in_place_time_us": _US,
            "in_place_algbw_gb_s": _GB_S,
            "in_place_busbw_gb_s": _GB_S,
        },
        # A collective that cannot run in place (all-to-all) has no check there.
        "must": {"wrong": "0", "in_place_wrong": ["0", "N/A"]},
    },
    "metrics": {
        "average_busbw_gb_s": {
            "pattern": r"^# Avg bus bandwidth\s*:\s*(?P<value>\S+)",
            **_GB_S,
        },
    },
    "must": [r"^# Out of bounds values\s*:\s*0 OK"],
    "never": [r"Out of bounds values.*FAILED", r": Test (CUDA |NCCL )?failure"],
}

NCCL_TESTS = (
    Preset(
        name="all_reduce_perf",
        summary="NCCL tests: allreduce over sizes, out of place and in place",
        argv=("all_reduce_perf", "-b", "8", "-e", "128M", "-f", "2"),
        expects=_NCCL_EXPECTS,
        versions=("2.17.1", "2.18.3"),
    ),
    Preset(
        name="alltoall_perf",
        summary="NCCL tests: all-to-all over sizes",
        argv=("alltoall_perf", "-b", "8", "-e", "128M", "-f", "2"),
        expects=_NCCL_EXPECTS,
        versions=("unnamed",),
    ),
)

_MXNET_ITERATION = r"\biter \d+, "

EXCHANGE_SCRIPTS = (
    Preset(
        name="measure_py",
        summary="MXNet's measure.py: gradients of a network through a key-value store",
        argv=("python", "measure.py"),
        expects={
            "samples": {
                "exchange_s": {
                    "pattern": _MXNET_ITERATION + r"(?P<value>\S+) sec,",
                    "unit": "s",
                    "better": "lower",
                },
                "bandwidth_gb_s": {
                    "pattern": _MXNET_ITERATION + r".*, (?P<value>\S+) GB/sec per gpu",
                    "unit": "GB/s",
                    "better": "higher",
                },
            },
            "metrics": {
                "size_mb": {"pattern": r"total size = (?P<value>\S+) MB", "unit": "MB"},
                "error": {
                    "pattern": _MXNET_ITERATION + r".* error (?P<value>\S+)",
                    "unit": "1",
                    "better": "lower",
                },
            },
            # Sums of float32 have errors below 1e-4; -1 means that there was no check.
            "never": [
                _MXNET_ITERATION + r".* error (?!0(\.0)?$|0\.0000|\d(\.\d+)?e-(0[5-9]|[1-9]\d)$)"
            ],
        },
        versions=("0b2b0d6",),
        per="job",
    ),
    Preset(
        name="mpi4dl_halo",
        summary="MPI4DL: halo exchange between tiles, with a check of the received data",
        argv=("python", "benchmark_sp_halo_exchange.py"),
        expects={
            "samples": {
                "exchange_ms": {
                    "pattern": r"^Rank: \d+ Time taken \(ms\): (?P<value>\S+)",
                    "unit": "ms",
                    "better": "lower",
                }
            },
            "must": [r"^Validation passed for rank: \d"],
            "never": ["Validation failed for rank"],
        },
        versions=("0.6",),
    ),
)
