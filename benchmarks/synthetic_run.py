"""A synthetic run with as many events as the console must handle.

    python -m benchmarks.synthetic_run FOLDER --ranks 4096 --rate 1000 --seconds 60

The folder is a run folder with this process as its console. Times are drawn at random, and one host
is slower than the others. They are not measurements.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.goals import make_argument_parser

from spbench_core.events.fields import Event

CASE = "made-up"
PER_HOST = 8
SLOW_HOST = 3
SLOW_RANK = 5
BATCHES = 20  # writes per second
CONSOLE_ARGUMENTS = ("--program", "spbench")
"""Arguments by which spbench recognizes the process as the console of a run that still runs."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=1000, help="samples events a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--program", help="ignored; with `spbench` this process is a console")
    options = parser.parse_args()
    write_live(options.folder, options.ranks, options.rate, options.seconds)


def write_live(folder: Path, ranks: int, rate: int, seconds: float) -> None:
    """Write a run's start, ``rate`` events per second for some seconds, and its end."""
    create_folder(folder)
    with (folder / "events.jsonl").open("ab", buffering=0) as log:
        log.write(encode_lines(build_start(ranks, time.time())))
        ends = time.monotonic() + seconds
        due = time.monotonic()
        while due < ends:
            log.write(encode_lines(build_samples(ranks, rate // BATCHES, time.time())))
            due += 1 / BATCHES
            time.sleep(max(0.0, due - time.monotonic()))
        log.write(encode_lines(build_end(ranks, time.time())))


def write_recorded(folder: Path, ranks: int, events: int, values: int = 1) -> None:
    """Write a complete run with that many events of ``values`` samples each.

    The events have a rate of 1,000 per second.
    """
    create_folder(folder)
    started = time.time() - events / 1000
    with (folder / "events.jsonl").open("wb") as log:
        log.write(encode_lines(build_start(ranks, started)))
        for step in range(events // 100):
            log.write(encode_lines(build_samples(ranks, 100, started + step / 10, values)))
        log.write(encode_lines(build_end(ranks, started + events / 1000)))


def write_cases(folder: Path, cases: int, ranks: int, values: int, launches: int = 1) -> None:
    """Write a complete run of cases that sweep two parameters; every ninth one failed.

    Each rank has ``values`` times in each launch. The last case measures the links between the
    ranks.
    """
    create_folder(folder)
    started = time.time() - cases * launches
    descriptions = [_describe_swept_case(number, ranks) for number in range(cases - 1)] + [
        _describe_links_case(ranks)
    ]
    descriptions = [case | {"repeat": launches} for case in descriptions]
    with (folder / "events.jsonl").open("wb") as log:
        log.write(encode_lines(_build_run_start(descriptions, started)))
        for launch in range(launches):
            now = started + cases * launch
            log.write(encode_lines(_build_job_start(descriptions, ranks, now, launch + 1)))
            for number, case in enumerate(descriptions):
                log.write(encode_lines(_build_launch(case, launch, ranks, values, now + number)))
                if launch == launches - 1:
                    log.write(encode_lines(iter([_build_verdict(case, number, now + number)])))
        end = {"verdict": "failed", "exit_code": 1, "errors": [], "findings": []}
        log.write(encode_lines(iter([{"event": "run_end", "time": now + cases, **end}])))


def _describe_swept_case(number: int, ranks: int) -> Event:
    size = 1 << (number % 12 + 4)
    method = f"method-{number // 12 % 5}"
    name = f"exchange-{number // 60}"
    case = describe_case(f"{name}[size={size},method={method}]", name, ranks)
    return case | {"params": {"size": size, "method": method, "warmup": 3}}


def _describe_links_case(ranks: int) -> Event:
    latency = {"name": "latency_us", "unit": "us", "better": "lower", "fold": "max"}
    case = describe_case("links", "links", ranks)
    return case | {"measures": "link", "metrics": [*case["metrics"], latency]}


def describe_case(id: str, name: str, ranks: int) -> Event:
    """Return the description of a case in run_start."""
    metrics = [
        {"name": "time_ms", "unit": "ms", "better": "lower", "fold": "max"},
        {"name": "bandwidth_gb_s", "unit": "GB/s", "better": "higher", "fold": "min"},
    ]
    case = {"id": id, "name": name, "benchmark": "made.up", "params": {}, "np": ranks}
    case |= {"repeat": 1, "inject": None, "measures": "rank", "metrics": metrics, "checks": []}
    return case | {"expect": [], "places": [{"tile": rank} for rank in range(ranks)]}


def _build_launch(case: Event, launch: int, ranks: int, values: int, now: float) -> Iterator[Event]:
    """Yield the ranks' events of a case in a launch.

    Times grow with the case's size, and rank 5 is slower.
    """
    size = case["params"].get("size", 64)
    method = case["params"].get("method")
    base_time_s = size / 500 * (2 if method == "method-3" else 1)
    for rank in range(ranks):
        fields = {"rank": rank, "seq": 0, "time": now, "job": launch + 1}
        fields |= {"case": case["id"], "repeat": launch}
        yield {"event": "case_start", **fields}
        slow = base_time_s * (1.6 if rank == SLOW_RANK else 1.0)
        times = [round(random.lognormvariate(0, 0.1) * slow, 5) for _ in range(values)]
        yield {"event": "samples", **fields, "metric": "time_ms", "values": times}
        fastest = {"name": "time_ms", "value": base_time_s * 0.7, "measured_by": "rank 0 alone"}
        yield {"event": "metric", **fields, **fastest}
        yield {"event": "metric", **fields, "name": "bandwidth_gb_s", "value": 1 / base_time_s}
        for peer in range(ranks) if case["name"] == "links" else ():
            if peer != rank:
                yield {"event": "metric", **fields, **_build_link_metric(rank, peer)}
        yield {"event": "case_end", **fields, "status": "ok"}


def _build_verdict(case: Event, number: int, now: float) -> Event:
    source = f"rank {SLOW_RANK} on {_format_host(SLOW_RANK)}"
    message = f"{source} differs from the reference by 0.25 at (3, 7)"
    failed = number % 9 == 4
    status = (
        {"status": "failed", "reason": message} if failed else {"status": "passed", "reason": None}
    )
    verdict = {"case": case["id"], **status, "traceback": None, "expectations": []}
    return {"event": "case_judged", "time": now, **verdict}


def _build_link_metric(rank: int, peer: int) -> Event:
    slow = 3.0 if {rank, peer} == {0, SLOW_RANK} else 1.0
    ends = {"host_a": _format_host(rank), "host_b": _format_host(peer), "bytes": 8}
    value = random.lognormvariate(0, 0.05) * slow
    labels = {"source": rank, "target": peer, **ends}
    return {"name": "latency_us", "value": value, "labels": labels}


def create_folder(folder: Path) -> None:
    """Create the run folder, with this process as its console."""
    folder.mkdir(parents=True)
    console = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    run = {"id": folder.name, "suite": "made-up", "file": "made-up.yaml", "argv": [], "seed": 0}
    (folder / "run.json").write_text(json.dumps(run | {"console": console, "environment": {}}))


def build_start(ranks: int, now: float) -> Iterator[Event]:
    """Yield the events until every rank has started the case."""
    yield from _build_ready([describe_case(CASE, CASE, ranks)], ranks, now)
    for rank in range(ranks):
        fields = {"rank": rank, "seq": 0, "time": now, "job": 1}
        yield {"event": "case_start", **fields, "case": CASE, "repeat": 0}


def _build_ready(cases: list[Event], ranks: int, now: float) -> Iterator[Event]:
    """Yield the events until every rank is ready."""
    yield from _build_run_start(cases, now)
    yield from _build_job_start(cases, ranks, now, 1)


def _build_run_start(cases: list[Event], now: float) -> Iterator[Event]:
    run = {"id": "made-up", "suite": "made-up", "description": "", "argv": [], "seed": 0}
    yield {"event": "run_start", "time": now, **run, "environment": {}, "cases": cases}


def _build_job_start(cases: list[Event], ranks: int, now: float, number: int) -> Iterator[Event]:
    job = {
        "job": number,
        "launcher": "none",
        "version": "made up",
        "argv": [],
        "hostfile": None,
    }
    job |= {
        "env": {},
        "np": ranks,
        "oversubscribed": False,
        "cases": [case["id"] for case in cases],
    }
    yield {"event": "job_start", "time": now, **job}
    for rank in range(ranks):
        fields = {"rank": rank, "seq": 0, "time": now, "job": number}
        yield {"event": "ready", **fields, **_describe_process(rank), "size": ranks, "versions": {}}


def _describe_process(rank: int) -> Event:
    local_rank = rank % PER_HOST
    process = {
        "host": _format_host(rank),
        "pid": 1000 + rank,
        "local_rank": local_rank,
        "cpus": [local_rank],
    }
    return process | {"numa": 0, "threads": 1, "device": "cpu", "fabric": "made-up"}


def _format_host(rank: int) -> str:
    return f"node{rank // PER_HOST:03d}"


def build_samples(ranks: int, event_count: int, now: float, values: int = 1) -> Iterator[Event]:
    """Yield that many events of samples, of ranks drawn at random."""
    for _ in range(event_count):
        rank = random.randrange(ranks)
        median_ms = 1.8 if rank // PER_HOST == SLOW_HOST else 1.0
        times_ms = [round(random.lognormvariate(0, 0.1) * median_ms, 4) for _ in range(values)]
        fields = {"rank": rank, "seq": 0, "time": now, "job": 1, "case": CASE, "repeat": 0}
        yield {"event": "samples", **fields, "metric": "time_ms", "values": times_ms}


def build_end(ranks: int, now: float) -> Iterator[Event]:
    """Yield the end of the case and of the run."""
    for rank in range(ranks):
        fields = {"rank": rank, "seq": 0, "time": now, "job": 1}
        yield {"event": "case_end", **fields, "case": CASE, "repeat": 0, "status": "ok"}
    verdict = {"case": CASE, "status": "passed", "reason": None, "traceback": None}
    yield {"event": "case_judged", "time": now, **verdict, "expectations": []}
    yield {"event": "job_end", "time": now, "job": 1, "reason": None}
    end = {"verdict": "passed", "exit_code": 0, "errors": [], "findings": []}
    yield {"event": "run_end", "time": now, **end}


def encode_lines(events: Iterator[Event]) -> bytes:
    """Return events as lines of the log."""
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


if __name__ == "__main__":
    main()
