"""Valid inputs for mutations: rank events, runs, suites, hostfiles, clusters."""

from __future__ import annotations

from pathlib import Path

from spbench_core.events.fields import Event

REPOSITORY = Path(__file__).parent.parent.parent
TOKEN = "t0ken"
CASES = ("a", "b")
SUITE = b"""\
schema: spbench.suite/1
name: fuzz
description: what is mutated
launch: {launcher: auto, threads: 1, env: {A: "1"}, setup: [module load x], args: [--x], timeout: 9}
cases:
  - name: halo
    benchmark: halo.exchange
    params: {image_size: 64x96, num_spatial_parts: 2, slice_method: vertical, halo_len: 2}
    expect: {time_ms.p50: {max: 5, min: 1}}
  - name: gemm
    benchmark: compute.gemm
    np: 2
    expect: {time_ms: {max: '2 * case(gemm).time_ms.p95 / min(1, case("halo").skew)'}}
    matrix: {n: [32, 64], dtype: [fp32, bf16]}
    exclude: [{n: 32, dtype: bf16}]
    repeat: 2
  - {name: link, benchmark: link.pingpong, zip: {sizes: [[8, 64KiB], [1]], np: [2, 4]}}
"""
OVERRIDES = (
    b"np=2",
    b"repeat=3",
    b"halo_len=1",
    b"image_size=64x96",
    b"n=[32, 64]",
    b"launch.timeout=9.5",
    b"launch.threads=2",
    b"launch.env={A: 1}",
    b"launch.args=[--x, 2]",
    b"scale={np: [1, 2], work: fixed}",
    b"order=interleaved",
)
HOSTFILE = b"""\
# of every dialect
node01:4
node02:4:mlx5_0:1
node03 slots=4 max_slots=8
node[05-06,09]:2,login1
[fe80::1]:4
"""
CLUSTER = b"""\
schema: spbench.cluster/1
name: two-racks
devices:
  v100: {memory: 16GB, speed: 1.0}
links:
  nvlink: {bandwidth: 25GB/s, latency: 5us}
  ethernet: {bandwidth: 1GB/s, all_reduce: 3GB/s}
machines:
  - {name: rack0, devices: {v100: 8}, link: nvlink, count: 2}
between: ethernet
pairs:
  - {machines: [rack0-0, rack0-1], link: nvlink}
"""
TORCHGRAPH = b"""\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, \
activation_size=0.0, parameter_size=0.000
node2 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=3.0, \
activation_size=1024.0, parameter_size=2048.000
\tnode1 -- node2
"""


def build_profile() -> bytes:
    """Return the profile that the documentation shows, with its first layers only."""
    import json

    document = json.loads((REPOSITORY / "docs/examples/resnet-20.json").read_text())
    return json.dumps(document | {"layers": document["layers"][:2]}).encode()


def build_rank_events(rank: int) -> list[Event]:
    """Return the events of one of two ranks, from its hello to its bye."""
    events: list[Event] = [
        {"event": "hello", "token": TOKEN, "host": "node01", "pid": 11 + rank},
        {
            "event": "ready",
            "size": 2,
            "pid": 11 + rank,
            "local_rank": rank,
            "host": "node01",
            "cpus": [0, 1],
            "numa": 0,
            "nodes": [0],
            "cores": 2,
            "host_cpus": 4,
            "threads": 1,
            "device": "cpu",
            "fabric": "sm",
            "versions": {"mpi": "Open MPI 5.0"},
        },
        {"event": "log", "level": "info", "message": "hello"},
    ]
    for case in CASES:
        case_fields = {"case": case, "repeat": 0}
        link = {"source": rank, "target": 1 - rank, "bytes": 8, "host_a": "n1", "host_b": "n2"}
        events += [
            {"event": "case_start", **case_fields},
            {"event": "progress", **case_fields, "phase": "timing", "done": 1, "total": 2},
            {"event": "samples", **case_fields, "metric": "time_ms", "values": [1.5, 2.5]},
            {"event": "metric", **case_fields, "name": "rate", "value": 2.0},
            {
                "event": "metric",
                **case_fields,
                "name": "rate",
                "value": 9.0,
                "measured_by": "memory.copy",
            },
            {"event": "metric", **case_fields, "name": "latency_us", "value": 1.0, "labels": link},
            {
                "event": "choice",
                **case_fields,
                "name": "transport",
                "value": "shm",
                "reason": "fastest",
            },
            {"event": "device", **case_fields, "device": "cpu", "reason": "auto", "near": True},
            _build_check(case_fields),
            {"event": "heartbeat"},
            {"event": "case_end", **case_fields, "status": "ok"},
        ]
    events.append({"event": "bye"})
    head = {"rank": rank, "time": 1001.0}
    return [{**event, **head, "seq": seq} for seq, event in enumerate(events)]


def _build_check(case_fields: Event) -> Event:
    figures = {"passed": True, "max_abs_error": 0.0, "tolerance": 0.5, "detail": ""}
    return {"event": "check", **case_fields, "name": "halo", **figures}


def build_run_start() -> Event:
    """Return the beginning of a run of two cases on two ranks."""
    return {
        "event": "run_start",
        "time": 1000.0,
        "id": "20260101-000000-fuzz-0000",
        "suite": "fuzz",
        "description": "",
        "argv": ["run", "fuzz.yaml"],
        "seed": 1,
        "environment": {"host": "login"},
        "cases": [_describe_case(name) for name in CASES],
    }


def build_job_start() -> Event:
    """Return the start of the run's job."""
    return {
        "event": "job_start",
        "time": 1000.0,
        "job": 1,
        "launcher": "openmpi",
        "version": "Open MPI 5.0",
        "argv": ["mpirun"],
        "hostfile": None,
        "env": {"OMP_NUM_THREADS": "1"},
        "np": 2,
        "cases": list(CASES),
        "oversubscribed": False,
        "asked": {"bind": "core", "hosts": [["node01", 2, "mlx5_0"]], "shown_by": "--report"},
    }


def build_recorded_run() -> list[Event]:
    """Return the events of a complete run, like in its log."""
    ranks = zip(*(build_rank_events(rank) for rank in (0, 1)), strict=True)
    rank_events = [{"job": 1, **event} for pair in ranks for event in pair]
    bounds = {"metric": "time_ms", "op": "max", "limit": 5.0, "value": 2.5, "status": "passed"}
    bounds |= {"expression": "2 * case(a).time_ms"}
    verdicts = [
        {"event": "case_judged", "time": 1002.0, "case": case, "status": "passed", "reason": None}
        | {"expectations": [bounds], "traceback": None}
        for case in CASES
    ]
    end = [
        {"event": "job_end", "time": 1003.0, "job": 1, "reason": None, "status": 0, "strangers": 0},
        {"event": "run_end", "time": 1003.0, "verdict": "passed", "exit_code": 0}
        | {"errors": [], "findings": ["All alike."]},
    ]
    return [build_run_start(), build_job_start(), *rank_events, *verdicts, *end]


def _describe_case(name: str) -> Event:
    figures = {"better": "lower", "fold": "max"}
    return {
        "id": name,
        "name": name,
        "benchmark": "link.pingpong",
        "params": {"iterations": 2, "warmup": 1},
        "np": 2,
        "repeat": 1,
        "inject": None,
        "measures": "link",
        "metrics": [
            {"name": "time_ms", "unit": "ms", **figures},
            {"name": "rate", "unit": "GB/s", "better": "higher", "fold": "sum"},
            {"name": "latency_us", "unit": "us", **figures},
        ],
        "checks": ["halo"],
        "expect": [
            {"metric": "time_ms", "op": "max", "limit": 5.0},
            {"metric": "rate", "op": "min", "limit": None, "expression": "case(b).time_ms / 9"},
        ],
        "places": [{"tile": "0,0"}, {"tile": "0,1"}],
    }
