"""Scripts of MXNet and MPI4DL: exchanges of gradients and of halos."""

from __future__ import annotations

from spbench_core.programs.presets.preset import Preset

_ITERATION = r"\biter \d+, "

PRESETS = (
    Preset(
        name="measure_py",
        summary="MXNet's measure.py: a network's gradients through a key-value store",
        argv=("python", "measure.py"),
        expects={
            "samples": {
                "exchange_s": {
                    "pattern": _ITERATION + r"(?P<value>\S+) sec,",
                    "unit": "s",
                    "better": "lower",
                },
                "bandwidth_gb_s": {
                    "pattern": _ITERATION + r".*, (?P<value>\S+) GB/sec per gpu",
                    "unit": "GB/s",
                    "better": "higher",
                },
            },
            "metrics": {
                "size_mb": {"pattern": r"total size = (?P<value>\S+) MB", "unit": "MB"},
                "error": {
                    "pattern": _ITERATION + r".* error (?P<value>\S+)",
                    "unit": "1",
                    "better": "lower",
                },
            },
            # Sums of float32 have errors below 1e-4; -1 means that there was no check.
            "never": [_ITERATION + r".* error (?!0(\.0)?$|0\.0000|\d(\.\d+)?e-(0[5-9]|[1-9]\d)$)"],
        },
        versions=("0b2b0d6",),
        per="job",
    ),
    Preset(
        name="mpi4dl_halo",
        summary="MPI4DL's halo exchange between tiles, and what was received",
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
