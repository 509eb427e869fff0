"""A run of many ranks through the whole console: lost events, and the cost.

    python -m benchmarks.scale [--ranks 10000] [--nodes 256] [--seconds 10] [--rate 1]
                               [--fan-in node|flat] [--no-tui]

The ranks are synthetic (`benchmarks.scale_ranks`). A few processes simulate all of them: each rank
has a connection, one heartbeat per second and that many events of samples. The console is real:
relays, collector, deadlines, log, state, lines, report, and the page in a terminal. The log is read
back, and must contain every event of every rank. The exit code is 1 if events are missing.
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

from benchmarks.collector import read_memory
from benchmarks.goals import Figure, format_figures, make_argument_parser
from benchmarks.synthetic_run import CONSOLE_ARGUMENTS
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
from spbench_core.events.fields import Event

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
SUITE = """\
schema: spbench.suite/1
name: scale
launch: {{fan_in: {fan_in}, start_timeout: 300, timeout: 600}}
cases:
  - {{name: copy, benchmark: memory.copy, np: {ranks}}}
"""
FIXED_EVENTS = 6
"""A rank's hello, ready, case_start, check, case_end and bye: no heartbeats, no samples."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of the run.

    Attributes:
        verdict: The case's status.
        seconds: From the launch to the last rank's end.
        ready: Seconds until the last rank was ready.
        cpu: Processor time of the console, in s.
        growth: Maximum growth of the console's memory, in MiB.
        report: Seconds to build the report.
    """

    verdict: str
    seconds: float
    ready: float
    cpu: float
    growth: float
    report: float


@dataclass(frozen=True, slots=True)
class LogContents:
    """The log: events, size in MiB, missing events, and the seconds to read it."""

    events: int
    size: float
    missing: int
    seconds: float


MeasuredRun = tuple[Cost, list[Figure]]


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring (default: 10)")
    parser.add_argument("--rate", type=float, default=1.0, help="events of samples a rank a second")
    parser.add_argument("--fan-in", choices=("node", "flat"), default="node")
    parser.add_argument("--no-tui", action="store_true", help="without the page in a terminal")
    parser.add_argument("--console", type=Path, help=SUPPRESS)
    parser.add_argument("--program", help=SUPPRESS)  # ignored: see CONSOLE_ARGUMENTS
    options = parser.parse_args()
    if options.console is not None:
        print(json.dumps(asdict(asyncio.run(run_job(options)))))
        return
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        cost, page_figures = measure(options, Path(home))
        (folder,) = Path(home, "runs").iterdir()
        contents = read_back(folder / "events.jsonl", options.ranks)
    print(f"{options.ranks:,} ranks on {options.nodes:,} nodes, {options.fan_in}: {cost.verdict}")
    print(format_figures(build_figures(cost, contents, page_figures)))
    sys.exit(1 if contents.missing or cost.verdict != "passed" else 0)


def build_figures(cost: Cost, contents: LogContents, page_figures: list[Figure]) -> list[Figure]:
    rate = contents.events / cost.seconds
    return [
        Figure("events missing from the log", contents.missing, "events", maximum=0),
        Figure("events in the log", contents.events, "events"),
        Figure("events a second, over the whole run", rate, "events/s"),
        Figure("the log", contents.size, "MiB"),
        Figure("until the last rank was ready", cost.ready, "s"),
        Figure("the whole job", cost.seconds, "s"),
        Figure("console: processor time, of one core", 100 * cost.cpu / cost.seconds, "%"),
        Figure("console: processor time an event", 1e6 * cost.cpu / contents.events, "us"),
        Figure("console: memory, peak growth", cost.growth, "MiB"),
        Figure("report: built in", cost.report, "s"),
        Figure("replay: the log read into a state in", contents.seconds, "s"),
        *page_figures,
    ]


def measure(options: Namespace, home: Path) -> MeasuredRun:
    """Run the job in a separate process with the console's page; return both costs."""
    argv = [sys.executable, "-m", "benchmarks.scale", *sys.argv[1:], "--console", str(home)]
    argv += CONSOLE_ARGUMENTS
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE) as console:
        try:
            page_figures = [] if options.no_tui else watch_run(home, options.seconds)
            output, _ = console.communicate()
        finally:
            console.kill()
    if console.returncode:
        sys.exit(console.returncode)
    return Cost(**json.loads(output)), page_figures


# The console


async def run_job(options: Namespace) -> Cost:
    text = SUITE.format(ranks=options.ranks, fan_in=options.fan_in)
    (case,) = load_suite_text(text, Path("scale.yaml")).cases
    job = Job(1, (case,), options.ranks, case.launch)
    folder = create_run(options.console, "scale")
    _write_run_json(folder)
    state = RunState()
    memory_before = read_memory("VmRSS")
    cpu_before = time.process_time()
    with open_view(state) as view, open_log(folder) as log:
        timer = ReadyTimer(view)
        recorder = Recorder(log, state, timer)
        description = describe_case(case, [options.ranks])
        run_fields: dict[str, Any] = {
            "id": folder.id,
            "suite": "scale",
            "description": "",
            "argv": [],
            "seed": None,
        }
        recorder.record("run_start", **run_fields, environment={}, cases=[description])
        started = time.monotonic()
        plan = JobPlan(job, None, build_launch(options, description), os.environ)
        fault = await JobRun(plan, folder, recorder).run()
        seconds = time.monotonic() - started
        cpu = time.process_time() - cpu_before
        (case_state,) = state.cases.values()
        if fault is not None:
            stderr = (folder.create_job_folder(1) / "stderr.log").read_text()[-2000:]
            sys.exit(f"scale: {fault.message}\n{stderr}")
        recorder.record("run_end", verdict=case_state.status, exit_code=0, errors=[], findings=[])
    growth = read_memory("VmHWM") - memory_before
    report_started = time.monotonic()
    cases, _ = build_cases(state)
    folder.write_chunks("report.json", build_document(state, cases).chunks())
    report_seconds = time.monotonic() - report_started
    return Cost(case_state.status, seconds, timer.ready - started, cpu, growth, report_seconds)


class ReadyTimer:
    """A view that stores the time when the last rank was ready, and passes events on."""

    def __init__(self, view: LineView) -> None:
        self._view = view
        self.ready = 0.0

    def __call__(self, event: Event) -> None:
        if event["event"] == "ready":
            self.ready = time.monotonic()
        self._view(event)


@contextmanager
def open_view(state: RunState) -> Iterator[LineView]:
    """Yield the view of a run without a terminal; its lines are discarded."""
    with open(os.devnull, "w") as nowhere:
        yield LineView(state, lambda line: print(line, file=nowhere), 0)


@contextmanager
def open_log(folder: RunFolder) -> Iterator[EventLog]:
    log = EventLog(folder.events)
    try:
        yield log
    finally:
        log.close()


def build_launch(options: Namespace, case: Mapping[str, Any]) -> Launch:
    """Return a launch with a launcher that simulates all ranks."""
    (check,) = case["checks"]
    arguments = [options.ranks, options.nodes, options.seconds, options.rate, case["id"], check]
    fan_in = {rank_events.ENV_FAN_IN: options.fan_in}
    argv = (sys.executable, "-m", "benchmarks.scale_ranks", *map(str, arguments))
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


# Readers of the run


def watch_run(home: Path, seconds: float) -> list[Figure]:
    """Watch the run in a terminal until its end; return the cost."""
    while not list(home.glob("runs/*/events.jsonl")):
        time.sleep(0.05)
    with Terminal([SPBENCH, "tui", "--home", str(home)], REPOSITORY) as terminal:
        terminal.wait_for_text("still running")
        terminal.press("y")
        draw_seconds = terminal.wait_for_text("node0|made up")
        started = time.monotonic()
        cpu_before = terminal.processor_seconds()
        terminal.rest(seconds)
        load = 100 * (terminal.processor_seconds() - cpu_before) / (time.monotonic() - started)
        terminal.press("j")
        answer = terminal.wait_for_text("▸")
    return [
        Figure("page: drawn after", draw_seconds, "s"),
        Figure("page: processor time, of one core", load, "%"),
        Figure("page: a key's answer", 1000 * answer, "ms"),
    ]


def read_back(path: Path, ranks: int) -> LogContents:
    """Read the log like a replay; count the missing events of each rank."""
    state = RunState()
    next_seqs: dict[int, int] = {}
    ended: set[int] = set()
    missing = events = 0
    started = time.monotonic()
    with path.open("rb") as file:
        for line in file:
            event = json.loads(line)
            state.apply(event)
            if "seq" in event:
                rank = event["rank"]
                missing += event["seq"] != next_seqs.get(rank, 0)
                next_seqs[rank] = event["seq"] + 1
                events += 1
                if event["event"] == "bye":
                    ended.add(rank)
    seconds = time.monotonic() - started
    incomplete = sum(max(0, FIXED_EVENTS - count) for count in next_seqs.values())
    lost = FIXED_EVENTS * (ranks - len(next_seqs)) + (len(next_seqs) - len(ended)) + incomplete
    return LogContents(events, path.stat().st_size / 2**20, missing + lost, seconds)


if __name__ == "__main__":
    os.environ.setdefault("TERM", "xterm-256color")
    main()
