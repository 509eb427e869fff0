"""Throughput of the collector: lines of rank events a second, and memory.

    python -m benchmarks.collector [--rounds 3] [--ranks 64] [--lines 10000] [--profile STAGE]

Another process sends prebuilt lines over one connection a rank, as fast as they are taken. The
stages add up: the collector alone (decode and check), then the log, then the run's state, then
the job's own bookkeeping. They run by turns, so that a noisy neighbour troubles all alike.
First a console that is slowed down shows that its memory does not grow with what waits: the
senders have to wait, and their lines with them.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import multiprocessing
import pstats
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.collector_ranks import BASE, LOOPBACK, TOKEN, send
from benchmarks.goals import Figure, argument_parser, table

from spbench.engine.connections.collector import Collector
from spbench.engine.connections.rank_connection import RankConnection
from spbench.engine.job_listener import JobListener
from spbench.engine.recorder import Recorder
from spbench.engine.run_metadata import describe_case
from spbench.engine.watchdog import Watchdog
from spbench.launch.jobs import Job
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.folder import create_run
from spbench.record.state import RunState
from spbench.suites.case import Case
from spbench.suites.loader import load_suite_text
from spbench_core.events.fields import Event

STAGES = ("decode", "+ log", "+ state", "+ job")
GOAL = 100_000
MEMORY = 64
"""MiB by which memory may grow, however much is sent."""
SLOW = 20_000
"""Lines a second that the slowed console takes."""
SLOW_SECONDS = (1.0, 4.0)

SUITE = """\
schema: spbench.suite/1
name: collector
cases:
  - name: exchange
    benchmark: halo.exchange
    params: {{image_size: {size}, num_spatial_parts: {ranks}, halo_len: 1}}
    matrix: {{slice_method: [vertical]}}
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """The time and memory of one stage, once."""

    lines: int
    seconds: float
    cpu: float
    growth: float


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each stage (default: 3)")
    parser.add_argument("--ranks", type=int, default=64, help="connections (default: 64)")
    parser.add_argument("--lines", type=int, default=10_000, help="lines a rank (default: 10000)")
    parser.add_argument("--profile", choices=STAGES, help="profile one stage instead")
    words = parser.parse_args()
    case = one_case(words.ranks)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    sender = context.Process(target=send, args=(there, case.id, words.ranks, words.lines))
    sender.start()
    try:
        size = here.recv()
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(here, case, words.ranks, words.lines, Path(folder))
            if words.profile:
                bench.profile(words.profile)
                return
            count = words.ranks * words.lines
            total = f"{count:,} lines of {size / count:.0f} bytes ({size / (1 << 20):.0f} MiB)"
            print(f"{total} over {words.ranks} connections")
            print(report(bench, words.rounds))
    finally:
        here.send(None)
        sender.join()


def report(bench: Bench, rounds: int) -> str:
    slowed = zip(SLOW_SECONDS, bench.take_slowly(), strict=True)
    figures = [
        Figure(f"slowed to {SLOW:,}/s: growth in {seconds:g} s", growth, "MiB", most=MEMORY)
        for seconds, growth in slowed
    ]
    taken: dict[str, list[Taken]] = {stage: [] for stage in STAGES}
    for _ in range(rounds):
        for stage in STAGES:
            taken[stage].append(bench.take(stage))
    for stage, all_taken in taken.items():
        goal = GOAL if stage in ("+ state", "+ job") else None
        rates = [one.lines / one.seconds for one in all_taken]
        cpu = [one.cpu / one.lines * 1e6 for one in all_taken]
        growth = median(one.growth for one in all_taken)
        figures += [
            Figure(f"{stage:8} lines taken", median(rates), "lines/s", least=goal),
            Figure(f"{stage:8} CPU of the console", median(cpu), "us/line"),
            Figure(f"{stage:8} memory, peak growth", growth, "MiB", most=MEMORY),
        ]
    return f"{table(figures)}\nseq: no gap in any log"


def one_case(ranks: int) -> Case:
    """Return a case for that many ranks."""
    text = SUITE.format(ranks=ranks, size=4 * ranks)
    (case,) = load_suite_text(text, Path("collector.yaml")).cases
    return case


# The console


class Bench:
    """Takes what the sender sends, with more or less of the console behind the collector."""

    def __init__(
        self, sender: Connection[Any, Any], case: Case, ranks: int, lines: int, folder: Path
    ) -> None:
        self._sender = sender
        self._case = case
        self._ranks = ranks
        self._lines = lines
        self._folder = folder

    def take(self, stage: str, profiler: cProfile.Profile | None = None) -> Taken:
        """Take all lines once, and make sure that none is missing from the log."""
        run = create_run(self._folder, "collector")
        log = EventLog(run.events)
        listener = self._listener(stage, Recorder(log, self._state(stage), lambda _: None))
        taken = asyncio.run(self._collect(listener, profiler))
        log.close()
        if stage != "decode":
            self._check_log(run.events)
        run.events.unlink()
        return taken

    def take_slowly(self) -> tuple[float, float]:
        """Return how far memory has grown after a while, and after a longer while, in MiB."""
        run = create_run(self._folder, "collector")
        log = EventLog(run.events)
        recorder = Recorder(log, self._state("+ state"), lambda _: None)
        growth = asyncio.run(self._collect_slowly(SlowListener(recorder, self._ranks, self._lines)))
        log.close()
        run.events.unlink()
        return growth

    def profile(self, stage: str) -> None:
        profiler = cProfile.Profile()
        self.take(stage, profiler)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(20)

    def _state(self, stage: str) -> RunState:
        state = RunState() if stage in ("+ state", "+ job") else DeafState()
        described = describe_case(self._case, [self._ranks])
        console = {"time": BASE, "argv": [], "environment": {}, "seed": None}
        state.apply(
            {
                "event": "run_start",
                "id": "benchmark",
                "suite": "collector",
                "description": "",
                "cases": [described],
                **console,
            }
        )
        return state

    def _listener(self, stage: str, recorder: Recorder) -> CountingListener:
        if stage == "decode":
            return CountingListener(None, self._ranks, self._lines)
        if stage != "+ job":
            return RecordingListener(recorder, self._ranks, self._lines)
        case = self._case
        job = Job(1, (case,), self._ranks, case.launch)
        watch = Watchdog(
            np=self._ranks,
            items=[(case.id, 0)],
            start_timeout=case.launch.start_timeout,
            case_timeouts={case.id: case.launch.timeout},
            launched=time.monotonic(),
        )
        return WatchingListener(JobListener(job, recorder, watch), self._ranks, self._lines)

    async def _collect(
        self, listener: CountingListener, profiler: cProfile.Profile | None
    ) -> Taken:
        collector = Collector(TOKEN, listener)
        port = await collector.listen(LOOPBACK)
        before = start_of_peak()
        self._sender.send(port)
        if profiler is not None:
            profiler.enable()
        await listener.done.wait()
        if profiler is not None:
            profiler.disable()
        growth = memory("VmHWM") - before
        await collector.close()
        await asyncio.to_thread(self._sender.recv)
        if listener.wrong:
            sys.exit(f"collector: {listener.wrong}")
        seconds = listener.last - listener.first
        cpu = listener.last_cpu - listener.first_cpu
        return Taken(listener.count, seconds, cpu, growth)

    async def _collect_slowly(self, listener: CountingListener) -> tuple[float, float]:
        collector = Collector(TOKEN, listener)
        port = await collector.listen(LOOPBACK)
        before = start_of_peak()
        started = time.monotonic()
        self._sender.send(port)
        growths = []
        for seconds in SLOW_SECONDS:
            await asyncio.sleep(started + seconds - time.monotonic())
            growths.append(memory("VmHWM") - before)
        await collector.close()
        await asyncio.to_thread(self._sender.recv)
        if listener.done.is_set():
            sys.exit("collector: all was taken before the time was up; give more --lines")
        return growths[0], growths[1]

    def _check_log(self, path: Path) -> None:
        next_seq = [0] * self._ranks
        with path.open("rb") as file:
            for line in file:
                event = json.loads(line)
                if "seq" not in event:  # the console's own
                    continue
                rank = event["rank"]
                if event["job"] != 1 or event["seq"] != next_seq[rank]:
                    sys.exit(f"collector: rank {rank} has {event['seq']} after {next_seq[rank]}")
                next_seq[rank] += 1
        if set(next_seq) != {self._lines}:
            sys.exit(f"collector: {sum(next_seq)} lines in the log")


class DeafState(RunState):
    """A state that takes nothing in."""

    def apply(self, event: Mapping[str, Any]) -> None:
        """Leave the event out."""


class CountingListener:
    """Counts, and notes the times of the first and the last batch."""

    def __init__(self, behind: Any, ranks: int, lines: int) -> None:
        self.behind = behind
        self.done = asyncio.Event()
        self.count = 0
        self.first = self.last = 0.0
        self.first_cpu = self.last_cpu = 0.0
        self.wrong = ""
        self._expected = ranks * lines

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Pass a batch on."""
        if not self.count:
            self.first = time.monotonic()
            self.first_cpu = time.process_time()
        try:
            self.record(source, lines, events)
        except Exception as error:
            # The event loop would go on without it, and the benchmark wait for ever.
            self.on_violation(source, repr(error))
        self.count += len(events)
        if self.count == self._expected:
            self.last = time.monotonic()
            self.last_cpu = time.process_time()
            self.done.set()

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Do nothing with it."""

    def on_violation(self, source: RankConnection, why: str) -> None:
        """Note it: it ends the benchmark."""
        self.wrong = self.wrong or why
        self.done.set()

    def on_lost(self, source: RankConnection) -> None:
        """All connections end, at the end."""

    def on_relay_lost(self, host: str, ranks: int, why: str) -> None:
        """There are no relays here: it ends the benchmark."""
        self.wrong = self.wrong or f"relay of {host} {why}"
        self.done.set()

    def on_rejected(self, peer: str, why: str) -> None:
        """Note it: it ends the benchmark."""
        self.wrong = self.wrong or why
        self.done.set()


class RecordingListener(CountingListener):
    """Has a recorder behind it."""

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record the batch."""
        self.behind.take(1, lines, events)


class SlowListener(RecordingListener):
    """Has a recorder behind it, and takes its time."""

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record the batch and wait."""
        super().record(source, lines, events)
        time.sleep(len(events) / SLOW)


class WatchingListener(CountingListener):
    """Has a job behind it, as in a run."""

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Hand the batch to the job."""
        self.behind.on_events(source, lines, events)
        if self.behind.failure is not None:
            raise self.behind.failure


def start_of_peak() -> float:
    """Set the peak of this process's memory back to what it has now, and return that, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(field: str) -> float:
    """Return a field of /proc/self/status, in MiB."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
