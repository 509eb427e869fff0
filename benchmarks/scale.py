"""A run of many ranks through the whole console: what is lost, and what it costs.

    python -m benchmarks.scale [--ranks 10000] [--nodes 256] [--seconds 10] [--rate 1]
                               [--fan-in node|flat] [--no-tui]

The ranks are made up (`benchmarks.scale_ranks`): some processes play them all, each rank with a
connection, a heartbeat a second and so many events of samples. All behind them is real: relays,
collector, deadlines, log, state, lines, report, and the console's page in a terminal. The log is
read back, and every event of every rank must be in it. Exit code 1: something was lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.collector import memory
from benchmarks.goals import Figure, argument_parser, table
from benchmarks.terminal import Terminal

from spbench.cli.runs.lines import LineView
from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.recorder import Recorder
from spbench.engine.run_metadata import describe_case
from spbench.launch.jobs import Job, Launch
from spbench.launch.launcher import Command, LauncherReport
from spbench.launch.mpi_probe import MpiLibrary
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.folder import RunFolder, create_run
from spbench.record.state import RunState
from spbench.report.build import build_cases, build_document
from spbench.suites.loader import load_suite_text
from spbench_core.events import rank_events

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
SUITE = """\
schema: spbench.suite/1
name: scale
launch: {{fan_in: {fan_in}, start_timeout: 300, timeout: 600}}
cases:
  - {{name: copy, benchmark: memory.copy, np: {ranks}}}
"""
EVENTS_BESIDE = 6
"""A rank's events but heartbeats and samples: hello, ready, case_start, check, case_end, bye."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The run as it went.

    Attributes:
        verdict: The case's status.
        seconds: From the launch to the last rank's end.
        ready: Seconds until the last rank was ready.
        cpu: Processor time of the console, in s.
        growth: Memory by which the console has grown, at most, in MiB.
        report: Seconds in which the report is built.
    """

    verdict: str
    seconds: float
    ready: float
    cpu: float
    growth: float
    report: float


@dataclass(frozen=True, slots=True)
class Logged:
    """Contents of the log: events, their bytes, and how many of them are missing."""

    events: int
    size: float
    missing: int
    seconds: float


Measured = tuple[Cost, list[Figure]]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring (default: 10)")
    parser.add_argument("--rate", type=float, default=1.0, help="events of samples a rank a second")
    parser.add_argument("--fan-in", choices=("node", "flat"), default="node")
    parser.add_argument("--no-tui", action="store_true", help="without the page in a terminal")
    parser.add_argument("--console", type=Path, help=SUPPRESS)
    asked = parser.parse_args()
    if asked.console is not None:
        print(json.dumps(asdict(asyncio.run(_run(asked)))))
        return
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        cost, watching = measure(asked, Path(home))
        (folder,) = Path(home, "runs").iterdir()
        logged = read_back(folder / "events.jsonl", asked.ranks)
    print(f"{asked.ranks:,} ranks on {asked.nodes:,} nodes, {asked.fan_in}: {cost.verdict}")
    print(table(figures(cost, logged, watching)))
    sys.exit(1 if logged.missing or cost.verdict != "passed" else 0)


def figures(cost: Cost, logged: Logged, watching: list[Figure]) -> list[Figure]:
    rate = logged.events / cost.seconds
    return [
        Figure("events missing from the log", logged.missing, "events", most=0),
        Figure("events in the log", logged.events, "events"),
        Figure("events a second, over the whole run", rate, "events/s"),
        Figure("the log", logged.size, "MiB"),
        Figure("until the last rank was ready", cost.ready, "s"),
        Figure("the whole job", cost.seconds, "s"),
        Figure("console: processor time, of one core", 100 * cost.cpu / cost.seconds, "%"),
        Figure("console: processor time an event", 1e6 * cost.cpu / logged.events, "us"),
        Figure("console: memory, peak growth", cost.growth, "MiB"),
        Figure("report: built in", cost.report, "s"),
        Figure("replay: the log read into a state in", logged.seconds, "s"),
        *watching,
    ]


def measure(asked: Namespace, home: Path) -> Measured:
    """Run it in a process of its own, with the console's page on it; return what both cost."""
    argv = [sys.executable, "-m", "benchmarks.scale", *sys.argv[1:], "--console", str(home)]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE) as console:
        try:
            watching = [] if asked.no_tui else watch(home, asked.seconds)
            told, _ = console.communicate()
        finally:
            console.kill()
    if console.returncode:
        sys.exit(console.returncode)
    return Cost(**json.loads(told)), watching


# The console


async def _run(asked: Namespace) -> Cost:
    text = SUITE.format(ranks=asked.ranks, fan_in=asked.fan_in)
    (case,) = load_suite_text(text, Path("scale.yaml")).cases
    job = Job(1, (case,), asked.ranks, case.launch)
    folder = create_run(asked.console, "scale")
    _write_run_json(folder)
    state = RunState()
    before = memory("VmRSS")
    spent = time.process_time()
    with lines(state) as view, logging(folder) as log:
        arrivals = EventCount(view, state)
        recorder = Recorder(log, state, arrivals)
        described = describe_case(case, [asked.ranks])
        words: dict[str, Any] = {
            "id": folder.id,
            "suite": "scale",
            "description": "",
            "argv": [],
            "seed": None,
        }
        recorder.record("run_start", **words, environment={}, cases=[described])
        began = time.monotonic()
        plan = JobPlan(job, None, made_up_launch(asked, described), os.environ)
        fault = await JobRun(plan, folder, recorder).run()
        seconds = time.monotonic() - began
        cpu = time.process_time() - spent
        (judged,) = state.cases.values()
        if fault is not None:
            said = (folder.job(1) / "stderr.log").read_text()[-2000:]
            sys.exit(f"scale: {fault.message}\n{said}")
        recorder.record("run_end", verdict=judged.status, exit_code=0, errors=[], findings=[])
    grown = memory("VmHWM") - before
    began_report = time.monotonic()
    cases, _ = build_cases(state)
    folder.write_chunks("report.json", build_document(state, cases).chunks())
    took = time.monotonic() - began_report
    return Cost(judged.status, seconds, arrivals.ready - began, cpu, grown, took)


class EventCount:
    """A view that notes when the last rank was ready, before the view behind it."""

    def __init__(self, behind: Any, state: RunState) -> None:
        self._behind = behind
        self._state = state
        self.ready = 0.0

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "ready":
            self.ready = time.monotonic()
        self._behind(event)


@contextmanager
def lines(state: RunState) -> Iterator[LineView]:
    """Give the view of a run without a terminal; its lines go nowhere."""
    with open(os.devnull, "w") as nowhere:
        yield LineView(state, lambda line: print(line, file=nowhere), 0)


@contextmanager
def logging(folder: RunFolder) -> Iterator[EventLog]:
    log = EventLog(folder.events)
    try:
        yield log
    finally:
        log.close()


def made_up_launch(asked: Namespace, case: Mapping[str, Any]) -> Launch:
    """Return a launch whose launcher plays all the ranks."""
    (check,) = case["checks"]
    words = [asked.ranks, asked.nodes, asked.seconds, asked.rate, case["id"], check]
    fan_in = {rank_events.ENV_FAN_IN: asked.fan_in}
    argv = (sys.executable, "-m", "benchmarks.scale_ranks", *map(str, words))
    launch = SimpleNamespace(
        command=Command(argv, {**os.environ, **fan_in}),
        launcher=SimpleNamespace(name="made up", parse_output=lambda _: LauncherReport()),
        version="made up",
        library=MpiLibrary("made up", "made up"),
        hostfile_text=None,
        spec=SimpleNamespace(oversubscribed=False, rank_env={}, hidden_env={}),
        placement=(),
        requested_placement={},
    )
    return cast(Launch, launch)


def _write_run_json(folder: RunFolder) -> None:
    console = {"pid": os.getpid(), "host": os.uname().nodename, "started": time.time()}
    run: dict[str, Any] = {
        "id": folder.id,
        "suite": "scale",
        "file": "scale.yaml",
        "argv": [],
        "seed": None,
    }
    folder.write_json("run.json", run | {"console": console, "environment": {}})


# Its readers


def watch(home: Path, seconds: float) -> list[Figure]:
    """Watch the run in a terminal, to its end; return what that costs."""
    while not list(home.glob("runs/*/events.jsonl")):
        time.sleep(0.05)
    with Terminal([SPBENCH, "tui", "--home", str(home)], REPOSITORY) as terminal:
        terminal.wait_for("Watch it")
        terminal.press("y")
        drawn = terminal.wait_for("node0|made up")
        began = time.monotonic()
        spent = terminal.processor_seconds()
        terminal.rest(seconds)
        load = 100 * (terminal.processor_seconds() - spent) / (time.monotonic() - began)
        terminal.press("j")
        answer = terminal.wait_for("▸")
    return [
        Figure("page: drawn after", drawn, "s"),
        Figure("page: processor time, of one core", load, "%"),
        Figure("page: a key's answer", 1000 * answer, "ms"),
    ]


def read_back(path: Path, ranks: int) -> Logged:
    """Read the log as a replay does; count what is missing of each rank's events."""
    state = RunState()
    seen: dict[int, int] = {}
    ended: set[int] = set()
    missing = events = 0
    began = time.monotonic()
    with path.open("rb") as file:
        for line in file:
            event = json.loads(line)
            state.apply(event)
            if "seq" in event:
                rank = event["rank"]
                missing += event["seq"] != seen.get(rank, 0)
                seen[rank] = event["seq"] + 1
                events += 1
                if event["event"] == "bye":
                    ended.add(rank)
    seconds = time.monotonic() - began
    short = sum(max(0, EVENTS_BESIDE - count) for count in seen.values())
    lost = EVENTS_BESIDE * (ranks - len(seen)) + (len(seen) - len(ended)) + short
    return Logged(events, path.stat().st_size / 2**20, missing + lost, seconds)


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    main()
