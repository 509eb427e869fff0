"""A run that no ranks made: as many events as the console is to bear, written as a run writes them.

    python -m benchmarks.made_up_run FOLDER --ranks 4096 --rate 1000 --seconds 60

The folder is a run folder whose console is this process. Times are drawn at random, one host is
slower than the rest; nothing of it is a measurement.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.goals import argument_parser

from spbench_core.events.fields import Event

CASE = "made-up"
PER_HOST = 8
SLOW_HOST = 3
SLOW_RANK = 5
BATCHES = 20
"""Writes a second."""


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=1000, help="samples events a second")
    parser.add_argument("--seconds", type=float, default=60)
    words = parser.parse_args()
    write_live(words.folder, words.ranks, words.rate, words.seconds)


def write_live(folder: Path, ranks: int, rate: int, seconds: float) -> None:
    """Write the start of a run, then ``rate`` events a second for so long, then its end."""
    begin(folder)
    with (folder / "events.jsonl").open("ab", buffering=0) as log:
        log.write(lines(opening(ranks, time.time())))
        ends = time.monotonic() + seconds
        due = time.monotonic()
        while due < ends:
            log.write(lines(samples(ranks, rate // BATCHES, time.time())))
            due += 1 / BATCHES
            time.sleep(max(0.0, due - time.monotonic()))
        log.write(lines(closing(ranks, time.time())))


def write_recorded(folder: Path, ranks: int, events: int, values: int = 1) -> None:
    """Write a whole run with so many events of ``values`` samples each, 1,000 a second."""
    begin(folder)
    started = time.time() - events / 1000
    with (folder / "events.jsonl").open("wb") as log:
        log.write(lines(opening(ranks, started)))
        for step in range(events // 100):
            log.write(lines(samples(ranks, 100, started + step / 10, values)))
        log.write(lines(closing(ranks, started + events / 1000)))


def write_cases(folder: Path, cases: int, ranks: int, values: int, launches: int = 1) -> None:
    """Write a whole run of so many cases, which sweep two parameters; every ninth one failed.

    Each of its ranks gives so many times in each launch, and the last case measures the links
    between them.
    """
    begin(folder)
    started = time.time() - cases * launches
    about = [_swept_case(number, ranks) for number in range(cases - 1)] + [_links_case(ranks)]
    about = [case | {"repeat": launches} for case in about]
    with (folder / "events.jsonl").open("wb") as log:
        log.write(lines(_run_start(about, started)))
        for launch in range(launches):
            now = started + cases * launch
            log.write(lines(_job_start(about, ranks, now, launch + 1)))
            for number, case in enumerate(about):
                log.write(lines(_launch(case, launch, ranks, values, now + number)))
                if launch == launches - 1:
                    log.write(lines(iter([_judged(case, number, now + number)])))
        ended = {"verdict": "failed", "exit_code": 1, "errors": [], "findings": []}
        log.write(lines(iter([{"event": "run_end", "time": now + cases, **ended}])))


def _swept_case(number: int, ranks: int) -> Event:
    size = 1 << (number % 12 + 4)
    way = f"way-{number // 12 % 5}"
    name = f"exchange-{number // 60}"
    about = described(f"{name}[size={size},way={way}]", name, ranks)
    return about | {"params": {"size": size, "way": way, "warmup": 3}}


def _links_case(ranks: int) -> Event:
    latency = {"name": "latency_us", "unit": "us", "better": "lower", "fold": "max"}
    about = described("links", "links", ranks)
    return about | {"measures": "link", "metrics": [*about["metrics"], latency]}


def described(id: str, name: str, ranks: int) -> Event:
    """Return a case as run_start describes it."""
    metrics = [
        {"name": "time_ms", "unit": "ms", "better": "lower", "fold": "max"},
        {"name": "bandwidth_gb_s", "unit": "GB/s", "better": "higher", "fold": "min"},
    ]
    case = {"id": id, "name": name, "benchmark": "made.up", "params": {}, "np": ranks}
    case |= {"repeat": 1, "inject": None, "measures": "rank", "metrics": metrics, "checks": []}
    return case | {"expect": [], "places": [{"tile": rank} for rank in range(ranks)]}


def _launch(about: Event, launch: int, ranks: int, values: int, now: float) -> Iterator[Event]:
    """Yield the ranks' events of a case in a launch: times grow with its size, rank 5 is slower."""
    size = about["params"].get("size", 64)
    way = about["params"].get("way")
    usual = size / 500 * (2 if way == "way-3" else 1)
    for rank in range(ranks):
        of = {"rank": rank, "seq": 0, "time": now, "job": launch + 1}
        of |= {"case": about["id"], "repeat": launch}
        yield {"event": "case_start", **of}
        slow = usual * (1.6 if rank == SLOW_RANK else 1.0)
        times = [round(random.lognormvariate(0, 0.1) * slow, 5) for _ in range(values)]
        yield {"event": "samples", **of, "metric": "time_ms", "values": times}
        best = {"name": "time_ms", "value": usual * 0.7, "measured_by": "rank 0 alone"}
        yield {"event": "metric", **of, **best}
        yield {"event": "metric", **of, "name": "bandwidth_gb_s", "value": 1 / usual}
        for other in range(ranks) if about["name"] == "links" else ():
            if other != rank:
                yield {"event": "metric", **of, **_link(rank, other)}
        yield {"event": "case_end", **of, "status": "ok"}


def _judged(about: Event, number: int, now: float) -> Event:
    why = f"rank {SLOW_RANK} on {_host(SLOW_RANK)} differs from the reference by 0.25 at (3, 7)"
    failed = number % 9 == 4
    said = {"status": "failed", "reason": why} if failed else {"status": "passed", "reason": None}
    judged = {"case": about["id"], **said, "traceback": None, "expectations": []}
    return {"event": "case_judged", "time": now, **judged}


def _link(rank: int, other: int) -> Event:
    slow = 3.0 if {rank, other} == {0, SLOW_RANK} else 1.0
    ends = {"host_a": _host(rank), "host_b": _host(other), "bytes": 8}
    value = random.lognormvariate(0, 0.05) * slow
    labels = {"source": rank, "target": other, **ends}
    return {"name": "latency_us", "value": value, "labels": labels}


def begin(folder: Path) -> None:
    """Make the run folder; this process is its console."""
    folder.mkdir(parents=True)
    console = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    run = {"id": folder.name, "suite": "made-up", "file": "made-up.yaml", "argv": [], "seed": 0}
    (folder / "run.json").write_text(json.dumps(run | {"console": console, "environment": {}}))


def opening(ranks: int, now: float) -> Iterator[Event]:
    """Yield the events until every rank is in the case."""
    yield from _start([described(CASE, CASE, ranks)], ranks, now)
    for rank in range(ranks):
        at = {"rank": rank, "seq": 0, "time": now, "job": 1}
        yield {"event": "case_start", **at, "case": CASE, "repeat": 0}


def _start(cases: list[Event], ranks: int, now: float) -> Iterator[Event]:
    """Yield the events until every rank is ready."""
    yield from _run_start(cases, now)
    yield from _job_start(cases, ranks, now, 1)


def _run_start(cases: list[Event], now: float) -> Iterator[Event]:
    run = {"id": "made-up", "suite": "made-up", "description": "", "argv": [], "seed": 0}
    yield {"event": "run_start", "time": now, **run, "environment": {}, "cases": cases}


def _job_start(cases: list[Event], ranks: int, now: float, number: int) -> Iterator[Event]:
    job = {"job": number, "launcher": "none", "version": "made up", "argv": [], "hostfile": None}
    job |= {
        "env": {},
        "np": ranks,
        "oversubscribed": False,
        "cases": [case["id"] for case in cases],
    }
    yield {"event": "job_start", "time": now, **job}
    for rank in range(ranks):
        at = {"rank": rank, "seq": 0, "time": now, "job": number}
        yield {"event": "ready", **at, **_place(rank), "size": ranks, "versions": {}}


def _place(rank: int) -> Event:
    local = rank % PER_HOST
    place = {"host": _host(rank), "pid": 1000 + rank, "local_rank": local, "cpus": [local]}
    return place | {"numa": 0, "threads": 1, "device": "cpu", "fabric": "made-up"}


def _host(rank: int) -> str:
    return f"node{rank // PER_HOST:03d}"


def samples(ranks: int, count: int, now: float, values: int = 1) -> Iterator[Event]:
    """Yield samples of so many ranks drawn at random."""
    for _ in range(count):
        rank = random.randrange(ranks)
        usual = 1.8 if rank // PER_HOST == SLOW_HOST else 1.0
        times = [round(random.lognormvariate(0, 0.1) * usual, 4) for _ in range(values)]
        at = {"rank": rank, "seq": 0, "time": now, "job": 1, "case": CASE, "repeat": 0}
        yield {"event": "samples", **at, "metric": "time_ms", "values": times}


def closing(ranks: int, now: float) -> Iterator[Event]:
    """Yield the end of the case and of the run."""
    for rank in range(ranks):
        at = {"rank": rank, "seq": 0, "time": now, "job": 1}
        yield {"event": "case_end", **at, "case": CASE, "repeat": 0, "status": "ok"}
    judged = {"case": CASE, "status": "passed", "reason": None, "traceback": None}
    yield {"event": "case_judged", "time": now, **judged, "expectations": []}
    yield {"event": "job_end", "time": now, "job": 1, "reason": None}
    end = {"verdict": "passed", "exit_code": 0, "errors": [], "findings": []}
    yield {"event": "run_end", "time": now, **end}


def lines(events: Iterator[Event]) -> bytes:
    """Return events as the log has them."""
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in events)


if __name__ == "__main__":
    main()
