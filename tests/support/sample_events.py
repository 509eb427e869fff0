"""Synthetic events of a controller and its ranks, and recorded runs of them."""

from __future__ import annotations

import os
import socket
from typing import Any

from spbench.engine.recorder import Recorder
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.files import replace_controls_in_json
from spbench.record.runs.folder import RunFolder, create_run
from spbench.record.state import RunState
from spbench_core.events import rank_events

RANK_EVENTS: dict[str, dict[str, Any]] = {
    "hello": {
        "token": "t0ken",
        "schema": rank_events.SCHEMA,
        "host": "node01",
        "pid": 11,
        "size": 2,
    },
    "ready": {
        "size": 2,
        "pid": 11,
        "local_rank": 0,
        "host": "node01",
        "cpus": [0, 1],
        "numa": 0,
        "threads": 1,
        "device": "cpu",
        "fabric": "self,sm",
        "versions": {"python": "3.11.2", "mpi": "Open MPI 5.0"},
    },
    "case_start": {"case": "a", "repeat": 0},
    "progress": {"case": "a", "repeat": 0, "phase": "timing", "done": 1, "total": 4},
    "samples": {"case": "a", "repeat": 0, "metric": "time_ms", "values": [1.0]},
    "check": {
        "case": "a",
        "repeat": 0,
        "name": "halo",
        "passed": True,
        "max_abs_error": 0.0,
        "tolerance": 0.0,
        "detail": "",
    },
    "metric": {"case": "a", "repeat": 0, "name": "bandwidth", "value": 1.5},
    "device": {"case": "a", "repeat": 0, "device": "cuda:0 NVIDIA H200", "reason": "auto"},
    "choice": {
        "case": "a",
        "repeat": 0,
        "name": "transport",
        "value": "shm",
        "reason": "the fastest of packed 0.2 ms, shm 0.1 ms",
    },
    "log": {"level": "info", "message": "hello"},
    "case_end": {"case": "a", "repeat": 0, "status": "ok"},
    "heartbeat": {},
    "bye": {},
}
"""An event of each kind that a rank sends, without the fields that all events have."""


def rank_event(kind, rank=0, seq=0, **fields):
    """Return an event of a rank, with the fields of `RANK_EVENTS` unless given."""
    return {"event": kind, "rank": rank, "seq": seq, "time": 1001.0, **RANK_EVENTS[kind], **fields}


def console_event(kind, **fields):
    return {"event": kind, "time": 1000.0, **fields}


def describe_metric(name, unit="1", better="lower", fold="max", **fields):
    return {"name": name, "unit": unit, "better": better, "fold": fold, **fields}


TIME = describe_metric("time_ms", "ms")


def describe_case(case="a", np=2, **changes):
    """Return the description of a case in ``run_start``."""
    return {
        "id": case,
        "name": case,
        "benchmark": "halo.exchange",
        "params": {"halo_len": 1, "warmup": 3},
        "np": np,
        "repeat": 1,
        "inject": None,
        "measures": "rank",
        "metrics": [TIME],
        "checks": ["halo"],
        "expect": [],
        "places": [],
        **changes,
    }


def run_start(*cases):
    return console_event(
        "run_start",
        id="20260101-000000-made-up-0000",
        suite="made-up",
        description="",
        argv=["run", "made-up.yaml"],
        seed=1,
        environment={"host": "login"},
        cases=list(cases or [describe_case()]),
    )


def run_resumed(*cases):
    """Return the event of a run that is resumed with these cases."""
    environment = {"host": "login"}
    return console_event("run_resumed", argv=["run"], environment=environment, cases=[*cases])


def retry(*cases):
    return console_event("retry", cases=[*cases])


def repeats_end(case="a", repeats=6, width=0.01):
    fields = {"case": case, "repeats": repeats, "why": "interval", "width": width}
    return console_event("repeats_end", **fields)


def job_start(*cases, np=2, job=1, **changes):
    return console_event(
        "job_start",
        job=job,
        launcher="openmpi",
        version="Open MPI 5.0",
        argv=["mpirun", "-n", str(np)],
        hostfile=None,
        env={"OMP_NUM_THREADS": "1"},
        np=np,
        cases=list(cases or ["a"]),
        oversubscribed=False,
        **changes,
    )


def job_end(reason=None, job=1):
    return console_event("job_end", job=job, reason=reason, status=0, strangers=0)


def case_judged(case="a", status="passed", reason=None, **fields):
    fields = {"traceback": None, "expectations": [], **fields}
    return console_event("case_judged", case=case, status=status, reason=reason, **fields)


def run_end(verdict="passed", exit_code=0, errors=(), findings=()):
    return console_event(
        "run_end",
        verdict=verdict,
        exit_code=exit_code,
        errors=list(errors),
        findings=list(findings),
    )


def make_phases_run(case="a", hosts=("node01", "node01", "node02")):
    """Return events of a pipeline on three ranks, with samples of step phases."""
    phases = [
        describe_metric(f"{name}_ms", "ms", part_of="time_ms") for name in ("spin", "send", "idle")
    ]
    positions = [
        {"replica": 0, "stage": rank, "tile": f"{rank},0", "mirrored_stage": 2 - rank}
        for rank in range(3)
    ]
    samples = {"time_ms": 10.0, "spin_ms": 6.0, "send_ms": 1.0}
    idle = ([1.0, 1.0], [2.0, 2.0], [3.0, 3.0])
    return [
        *make_started_run(
            describe_case(case, 3, metrics=[TIME, *phases], places=positions), hosts=hosts
        ),
        *(
            rank_event("samples", rank, case=case, metric=name, values=[value, value])
            for rank in range(3)
            for name, value in samples.items()
        ),
        *(
            rank_event("samples", rank, case=case, metric="idle_ms", values=values)
            for rank, values in enumerate(idle)
        ),
        *(rank_event("case_end", rank, case=case) for rank in range(3)),
        case_judged(case),
    ]


def make_started_run(*cases, hosts=("node01", "node01")):
    """Return events up to the start of the first case, with a rank per host."""
    np = len(hosts)
    cases = cases or (describe_case(np=np),)
    first = cases[0]["id"]
    return [
        run_start(*cases),
        job_start(*(case["id"] for case in cases), np=np),
        *(
            rank_event("ready", rank, host=host, size=np, local_rank=hosts[:rank].count(host))
            for rank, host in enumerate(hosts)
        ),
        *(rank_event("case_start", rank, case=first) for rank in range(np)),
    ]


def make_timed_run(times, hosts, case="a", measures="rank"):
    """Return the events of a case with these times on each rank."""
    return [
        *make_started_run(describe_case(case, len(hosts), measures=measures), hosts=hosts),
        *(
            rank_event("samples", rank, case=case, values=values)
            for rank, values in enumerate(times)
        ),
        case_judged(case),
    ]


def make_links_run(latency, bandwidth, case="links"):
    """Return the events of a case that measures links.

    Args:
        latency: The latency in us by ``((source, host), (target, host))``.
        bandwidth: The bandwidth in GB/s by the same keys.
        case: The id of the case.
    """
    hosts = dict(end for pair in (*latency, *bandwidth) for end in pair)
    description = describe_case(case, len(hosts), measures="link", checks=[])
    events = make_started_run(description, hosts=[hosts[rank] for rank in sorted(hosts)])
    for name, size, figures in (("latency_us", 8, latency), ("bandwidth_gb_s", 1 << 20, bandwidth)):
        for ((source, host_a), (target, host_b)), value in figures.items():
            pair = {"source": source, "target": target, "host_a": host_a, "host_b": host_b}
            labels = {**pair, "bytes": size}
            events.append(
                rank_event("metric", source, case=case, name=name, value=value, labels=labels)
            )
    return [*events, case_judged(case)]


def make_complete_run():
    """Return events of a passed run on two ranks, with all kinds of results."""
    description = describe_case(
        metrics=[TIME, describe_metric("bandwidth", "GB/s", "higher", "min")],
        expect=[{"metric": "time_ms", "op": "max", "limit": 5.0}],
        places=[{"tile": "0,0"}, {"tile": "0,1"}],
    )
    link = {"source": 0, "target": 1, "bytes": 8}
    expectation = {"metric": "time_ms", "op": "max", "limit": 5.0, "value": 2.5, "status": "passed"}
    return [
        *make_started_run(description),
        rank_event("progress", 0),
        rank_event("samples", 0, values=[1.0, 2.0]),
        rank_event("samples", 1, values=[2.0, 1.0]),
        rank_event("heartbeat", 0),
        rank_event("samples", 0, values=[3.0]),
        rank_event("samples", 1, values=[4.0]),
        *(rank_event("check", rank) for rank in (0, 1)),
        *(rank_event("metric", rank, value=10.0 + rank) for rank in (0, 1)),
        rank_event("metric", 0, name="bandwidth", value=20.0, measured_by="memory.copy"),
        rank_event("metric", 0, name="latency_us", value=0.5, labels=link),
        *(rank_event("case_end", rank) for rank in (0, 1)),
        case_judged(expectations=[expectation]),
        *(rank_event("bye", rank) for rank in (0, 1)),
        job_end(),
        run_end(findings=["All alike."]),
    ]


def make_hostile_run():
    """Return a run with texts that would change the state of a terminal."""
    evil = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\ud800\r"
    description = describe_case(
        evil, metrics=[TIME, describe_metric(evil)], places=[{evil: evil}], measures="link"
    )
    ends = {"source": 0, "target": 1, "host_a": evil, "host_b": evil, "bytes": 8, evil: evil}
    return [
        *make_started_run(description, hosts=(evil, evil)),
        rank_event("samples", 0, case=evil),
        rank_event("samples", 1, case=evil),
        rank_event("metric", 0, case=evil, name=evil, labels=ends),
        rank_event("metric", 0, case=evil, name="latency_us", labels=ends),
        rank_event("choice", 0, case=evil, name=evil, value=evil, reason=evil),
        rank_event("check", 1, case=evil, name=evil, passed=False, detail=evil),
        rank_event("log", 0, level="error", message=evil),
        case_judged(evil, "failed", evil, traceback=evil),
        run_end("failed", 1, errors=[evil], findings=[evil]),
    ]


def build_state(events):
    """Return the state of a run after these events."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state


def build_case_state(events, case="a"):
    return build_state(events).cases[case]


def record_events(folder: RunFolder, events) -> RunState:
    """Write events to a run folder like the engine does; return the state of the run."""
    state = RunState()
    log = EventLog(folder.events)
    recorder = Recorder(log, state, lambda event: None)
    job = 1
    for event in events:
        if event["event"] == "job_start":
            job = event["job"]
        if "seq" in event:
            line = rank_events.encode(event).rstrip(b"\n")
            recorder.record_batch(job, [line], [replace_controls_in_json(event)])
        else:
            fields = {name: event[name] for name in event if name not in ("event", "time")}
            recorder.record(event["event"], **fields)
    log.close()
    return state


def record_run(home, events, **changes) -> RunFolder:
    """Record a run under a home; by default, its controller is this process."""
    folder = create_run(home, "made-up")
    console = {"pid": os.getpid(), "host": socket.gethostname(), "started": 1000.0}
    folder.write_json("run.json", {"id": folder.id, "suite": "made-up", "console": console})
    record_events(folder, events)
    if changes:
        folder.write_json("run.json", folder.read_json("run.json") | changes)
    return folder
