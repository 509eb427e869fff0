"""iperf3 and fio: rates of a network and of a disk, in a JSON document at the end."""

from __future__ import annotations

from typing import Any

from spbench_core.programs.presets.preset import Preset

_GBIT_S = {"unit": "Gbit/s", "better": "higher", "scale": 1e-9}


def _list_metrics(direction: str) -> dict[str, Any]:
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
    summary="iperf3's client: the rate of one connection to a server that waits",
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
    summary="iperf3's server for one client; it listens when it has printed that it does",
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
    summary="fio: reads and writes of a file, each block checked",
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
        "json": {**_list_metrics("read"), **_list_metrics("write")},
        "must": [r'^\s*"error" : 0,'],
        "never": [r'^\s*"error" : [1-9]', "^verify: bad"],
    },
    versions=("3.33",),
    per="host",
)

PRESETS = (_IPERF3, _IPERF3_SERVER, _FIO)
