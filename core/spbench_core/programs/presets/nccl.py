"""nccl-tests of NVIDIA: collectives over sizes, with their errors.

All programs of the suite print the same table. Newer ones print their version; ``unnamed`` is one
that does not.
"""

from __future__ import annotations

from spbench_core.programs.presets.preset import Preset

_US = {"unit": "us", "better": "lower"}
_GB_S = {"unit": "GB/s", "better": "higher"}

_EXPECTS = {
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

PRESETS = (
    Preset(
        name="all_reduce_perf",
        summary="NCCL's allreduce over sizes, out of place and in place",
        argv=("all_reduce_perf", "-b", "8", "-e", "128M", "-f", "2"),
        expects=_EXPECTS,
        versions=("2.17.1", "2.18.3"),
    ),
    Preset(
        name="alltoall_perf",
        summary="NCCL's all-to-all over sizes",
        argv=("alltoall_perf", "-b", "8", "-e", "128M", "-f", "2"),
        expects=_EXPECTS,
        versions=("unnamed",),
    ),
)
