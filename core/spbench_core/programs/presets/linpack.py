"""HPC Challenge, High-Performance Linpack and STREAM."""

from __future__ import annotations

from typing import Any

from spbench_core.programs.presets.preset import Preset

_GFLOPS = {"unit": "GFLOP/s", "better": "higher"}
_GB_S = {"unit": "GB/s", "better": "higher"}
_GUPS = {"unit": "GUP/s", "better": "higher"}
_US = {"unit": "us", "better": "lower"}

_FAILED_RESIDUALS = r"\b[1-9]\d* tests completed and failed"


def _summary(key: str, metric: dict[str, Any]) -> dict[str, Any]:
    """Return the metric of a key in HPCC's summary; it may lack a number."""
    return {"pattern": rf"^{key}=(?P<value>\d\S*)$", **metric}


_HPCC = Preset(
    name="hpcc",
    summary="HPC Challenge: Linpack, transpose, random access, STREAM, FFT, latency and bandwidth",
    argv=("hpcc",),
    expects={
        "metrics": {
            "hpl_gflops": _summary("HPL_Tflops", {**_GFLOPS, "scale": 1e3}),
            "dgemm_gflops": _summary("StarDGEMM_Gflops", _GFLOPS),
            "transpose_gb_s": _summary("PTRANS_GBs", _GB_S),
            "random_access_gups": _summary("MPIRandomAccess_GUPs", _GUPS),
            "triad_gb_s": _summary("StarSTREAM_Triad", _GB_S),
            "copy_gb_s": _summary("StarSTREAM_Copy", _GB_S),
            "fft_gflops": _summary("MPIFFT_Gflops", _GFLOPS),
            "pingpong_us": _summary("AvgPingPongLatency_usec", _US),
            "pingpong_gb_s": _summary("AvgPingPongBandwidth_GBytes", _GB_S),
            "ring_us": _summary("NaturallyOrderedRingLatency_usec", _US),
            "ring_gb_s": _summary("NaturallyOrderedRingBandwidth_GBytes", _GB_S),
            "random_ring_us": _summary("RandomlyOrderedRingLatency_usec", _US),
            "random_ring_gb_s": _summary("RandomlyOrderedRingBandwidth_GBytes", _GB_S),
        },
        "must": ["^Success=1$", "^End of Summary section", "^End of HPC Challenge tests"],
        "never": [
            "FAILED",
            _FAILED_RESIDUALS,
            r"locations \(failed\)",
            r"^Node\(s\) with error [1-9]",
        ],
    },
    versions=("1.5.0",),
    reads="hpccoutf.txt",
)

_HPL = Preset(
    name="hpl",
    summary="High-Performance Linpack: the rate of solving a dense system, and its residual",
    argv=("xhpl",),
    expects={
        "table": {
            "header": r"^T/V\s+N\s+NB\s+P\s+Q\s+Time\s+Gflops",
            "rows": r"^W[RC]\d+[LCR]\d+[LCR]\d+\s",
            "columns": ["variant", "n", "nb", "p", "q", "time_s", "gflops"],
            "labels": ["variant", "n", "nb", "p", "q"],
            "metrics": {"time_s": {"unit": "s", "better": "lower"}, "gflops": _GFLOPS},
        },
        "must": [r"\.{6} PASSED", "^End of Tests"],
        "never": [r"\.{6} FAILED", _FAILED_RESIDUALS, "HPL ERROR"],
    },
    versions=("2.0", "2.3"),
)


def _kernel(name: str) -> dict[str, Any]:
    return {"pattern": rf"^{name}:\s+(?P<value>\S+)", **_GB_S, "scale": 1e-3}


_STREAM = Preset(
    name="stream",
    summary="STREAM: the bandwidth of a host's memory",
    argv=("stream",),
    expects={
        "metrics": {
            f"{kernel.lower()}_gb_s": _kernel(kernel)
            for kernel in ("Copy", "Scale", "Add", "Triad")
        },
        "must": ["^Solution Validates"],
        "never": ["^Failed Validation"],
    },
    versions=("5.10",),
    per="host",
)

PRESETS = (_HPCC, _HPL, _STREAM)
