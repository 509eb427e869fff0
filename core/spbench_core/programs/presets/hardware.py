"""Programs that measure processors, memory, the network and the disk of hosts.

HPC Challenge, High-Performance Linpack and STREAM print text. iperf3 and fio print a JSON document
at their end.
"""

from __future__ import annotations

from typing import Any

from spbench_core.programs.presets.preset import Preset

_GFLOPS = {"unit": "GFLOP/s", "better": "higher"}
_GB_S = {"unit": "GB/s", "better": "higher"}
_GUPS = {"unit": "GUP/s", "better": "higher"}
_US = {"unit": "us", "better": "lower"}

_FAILED_RESIDUALS = r"\b[1-9]\d* tests completed and failed"


def _make_hpcc_metric(key: str, metric: dict[str, Any]) -> dict[str, Any]:
    """Return the metric of a key in HPCC's summary; it may lack a number."""
    return {"pattern": rf"^{key}=(?P<value>\d\S*)$", **metric}


_HPCC = Preset(
    name="hpcc",
    summary="HPC Challenge: Linpack, transpose, random access, STREAM, FFT, latency and bandwidth",
    argv=("hpcc",),
    expects={
        "metrics": {
            "hpl_gflops": _make_hpcc_metric("HPL_Tflops", {**_GFLOPS, "scale": 1e3}),
            "dgemm_gflops": _make_hpcc_metric("StarDGEMM_Gflops", _GFLOPS),
            "transpose_gb_s": _make_hpcc_metric("PTRANS_GBs", _GB_S),
            "random_access_gups": _make_hpcc_metric("MPIRandomAccess_GUPs", _GUPS),
            "triad_gb_s": _make_hpcc_metric("StarSTREAM_Triad", _GB_S),
            "copy_gb_s": _make_hpcc_metric("StarSTREAM_Copy", _GB_S),
            "fft_gflops": _make_hpcc_metric("MPIFFT_Gflops", _GFLOPS),
            "pingpong_us": _make_hpcc_metric("AvgPingPongLatency_usec", _US),
            "pingpong_gb_s": _make_hpcc_metric("AvgPingPongBandwidth_GBytes", _GB_S),
            "ring_us": _make_hpcc_metric("NaturallyOrderedRingLatency_usec", _US),
            "ring_gb_s": _make_hpcc_metric("NaturallyOrderedRingBandwidth_GBytes", _GB_S),
            "random_ring_us": _make_hpcc_metric("RandomlyOrderedRingLatency_usec", _US),
            "random_ring_gb_s": _make_hpcc_metric("RandomlyOrderedRingBandwidth_GBytes", _GB_S),
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
    summary="High-Performance Linpack: rate of solving a dense system, and the residual",
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


def _make_stream_metric(name: str) -> dict[str, Any]:
    return {"pattern": rf"^{name}:\s+(?P<value>\S+)", **_GB_S, "scale": 1e-3}


_STREAM = Preset(
    name="stream",
    summary="STREAM: memory bandwidth of a host",
    argv=("stream",),
    expects={
        "metrics": {
            f"{kernel.lower()}_gb_s": _make_stream_metric(kernel)
            for kernel in ("Copy", "Scale", "Add", "Triad")
        },
        "must": ["^Solution Validates"],
        "never": ["^Failed Validation"],
    },
    versions=("5.10",),
    per="host",
)

_GBIT_S = {"unit": "Gbit/s", "better": "higher", "scale": 1e-9}


def _make_fio_metrics(direction: str) -> dict[str, Any]:
    """Return fio's metrics of ``read`` or ``write``, for all jobs in one group."""
    path = ["jobs", 0, direction]
    return {
        f"{direction}_mb_s": {
            "path": [*path, "bw_bytes"],
            "unit": "MB/s",
            "better": "higher",
            "scale": 1e-6,
        },
        f"{direction}_iops": {"path": [*path, "iops"], "unit": "1/s", "better": "higher"},
        f"{direction}_p99_us": {
            "path": [*path, "clat_ns", "percentile", "99.000000"],
            "unit": "us",
            "better": "lower",
            "scale": 1e-3,
            "optional": True,
        },
    }


_IPERF3 = Preset(
    name="iperf3",
    summary="iperf3 client: rate of one connection to a running server",
    argv=("iperf3", "--client", "127.0.0.1", "--json"),
    expects={
        "json": {
            "sent_gbit_s": {"path": "end.sum_sent.bits_per_second", **_GBIT_S},
            "received_gbit_s": {"path": "end.sum_received.bits_per_second", **_GBIT_S},
            "retransmits": {
                "path": "end.sum_sent.retransmits",
                "unit": "1",
                "better": "lower",
                "optional": True,
            },
            "jitter_ms": {
                "path": "end.sum.jitter_ms",
                "unit": "ms",
                "better": "lower",
                "optional": True,
            },
            "lost_percent": {
                "path": "end.sum.lost_percent",
                "unit": "%",
                "better": "lower",
                "optional": True,
            },
        },
        "never": [r'^\s*"error":', "^iperf3: error"],
    },
    versions=("3.12",),
    per="job",
)

_IPERF3_SERVER = Preset(
    name="iperf3_server",
    summary="iperf3 server for one client",
    argv=("iperf3", "--server", "--one-off", "--forceflush", "--format", "m"),
    expects={
        "metrics": {
            "received_gbit_s": {
                "pattern": r"^\[[ \dSUM]+\].*?(?P<value>[\d.]+) Mbits/sec.*\breceiver$",
                **_GBIT_S,
                "scale": 1e-3,
            }
        },
        "must": ["^Server listening on"],
        "never": ["^iperf3: error"],
    },
    versions=("3.12",),
    per="job",
)

_FIO = Preset(
    name="fio",
    summary="fio: reads and writes a file, and checks each block",
    argv=(
        "fio",
        "--name=spbench",
        "--filename=spbench-fio.tmp",
        "--unlink=1",
        "--rw=randrw",
        "--bs=4k",
        "--size=64m",
        "--verify=crc32c",
        "--group_reporting",
        "--output-format=json",
    ),
    expects={
        "json": {**_make_fio_metrics("read"), **_make_fio_metrics("write")},
        "must": [r'^\s*"error" : 0,'],
        "never": [r'^\s*"error" : [1-9]', "^verify: bad"],
    },
    versions=("3.33",),
    per="host",
)

PRESETS = (_HPCC, _HPL, _STREAM, _IPERF3, _IPERF3_SERVER, _FIO)
