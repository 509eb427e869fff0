"""Throughput of the collector in lines of rank events per second, and its memory.

    python -m benchmarks.collector [--rounds 3] [--ranks 64] [--lines 10000] [--profile STAGE]

Another process sends prebuilt lines over one connection per rank, as fast as they are accepted.
Each stage adds one part: the collector (decode and check), the log, the run's state, and the job's
bookkeeping. The stages are interleaved, so that other work on the machine affects all of them.
First, a console that is slowed down shows that its memory does not grow with unread lines: the
senders wait.
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

from benchmarks.collector_ranks import BASE, LOOPBACK, TOKEN, send_lines
from benchmarks.goals import Figure, format_figures, make_argument_parser

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
MIN_LINES_PER_S = 100_000
MAX_GROWTH_MIB = 64
"""Limit of memory growth for any number of lines."""
SLOW_LINES_PER_S = 20_000
"""Rate of the slowed console."""
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
class StageMeasurement:
    """The time and memory of one stage in one round.

    Attributes:
        seconds: Time from the first batch to the last.
        cpu: Processor time of the console in seconds.
        growth: Growth of the peak memory in MiB.
    """

    lines: int
    seconds: float
    cpu: float
    growth: float


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each stage (default: 3)")
    parser.add_argument("--ranks", type=int, default=64, help="connections (default: 64)")
    parser.add_argument("--lines", type=int, default=10_000, help="lines a rank (default: 10000)")
    parser.add_argument("--profile", choices=STAGES, help="profile one stage instead")
    options = parser.parse_args()
    case = load_case(options.ranks)
    context = multiprocessing.get_context("spawn")
    pipe, sender_pipe = context.Pipe()
    sender = context.Process(
        target=send_lines, args=(sender_pipe, case.id, options.ranks, options.lines)
    )
    sender.start()
    try:
        size = pipe.recv()
        with tempfile.TemporaryDirectory() as folder:
            bench = StageBenchmark(pipe, case, options.ranks, options.lines, Path(folder))
            if options.profile:
                bench.print_profile(options.profile)
                return
            count = options.ranks * options.lines
            total = f"{count:,} lines of {size / count:.0f} bytes ({size / (1 << 20):.0f} MiB)"
            print(f"{total} over {options.ranks} connections")
            print(measure_stages(bench, options.rounds))
    finally:
        pipe.send(None)
        sender.join()


def measure_stages(bench: StageBenchmark, rounds: int) -> str:
    slowed = zip(SLOW_SECONDS, bench.measure_growth(), strict=True)
    figures = [
        Figure(
            f"slowed to {SLOW_LINES_PER_S:,}/s: growth in {seconds:g} s",
            growth,
            "MiB",
            maximum=MAX_GROWTH_MIB,
        )
        for seconds, growth in slowed
    ]
    costs: dict[str, list[StageMeasurement]] = {stage: [] for stage in STAGES}
    for _ in range(rounds):
        for stage in STAGES:
            costs[stage].append(bench.measure_stage(stage))
    for stage, stage_costs in costs.items():
        goal = MIN_LINES_PER_S if stage in ("+ state", "+ job") else None
        rates = [cost.lines / cost.seconds for cost in stage_costs]
        cpu = [cost.cpu / cost.lines * 1e6 for cost in stage_costs]
        growth = median(cost.growth for cost in stage_costs)
        figures += [
            Figure(f"{stage:8} lines taken", median(rates), "lines/s", minimum=goal),
            Figure(f"{stage:8} CPU of the console", median(cpu), "us/line"),
            Figure(f"{stage:8} memory, peak growth", growth, "MiB", maximum=MAX_GROWTH_MIB),
        ]
    return f"{format_figures(figures)}\nseq: no gap in any log"


def load_case(ranks: int) -> Case:
    """Return a case of that many ranks."""
    text = SUITE.format(ranks=ranks, size=4 * ranks)
    (case,) = load_suite_text(text, Path("collector.yaml")).cases
    return case


# The console


class StageBenchmark:
    """Measurements of the sender's lines, with one of the stages behind the collector."""

    def __init__(
        self, sender: Connection[Any, Any], case: Case, ranks: int, lines: int, folder: Path
    ) -> None:
        self._sender = sender
        self._case = case
        self._ranks = ranks
        self._lines = lines
        self._folder = folder

    def measure_stage(
        self, stage: str, profiler: cProfile.Profile | None = None
    ) -> StageMeasurement:
        """Take all lines once; exit with an error if a line is missing from the log."""
        run = create_run(self._folder, "collector")
        log = EventLog(run.events)
        listener = self._make_listener(
            stage, Recorder(log, self._make_state(stage), lambda _: None)
        )
        cost = asyncio.run(self._collect(listener, profiler))
        log.close()
        if stage != "decode":
            self._check_log(run.events)
        run.events.unlink()
        return cost

    def measure_growth(self) -> tuple[float, float]:
        """Return the growth of memory in MiB after each time of `SLOW_SECONDS`."""
        run = create_run(self._folder, "collector")
        log = EventLog(run.events)
        recorder = Recorder(log, self._make_state("+ state"), lambda _: None)
        growth = asyncio.run(self._collect_slowly(SlowListener(recorder, self._ranks, self._lines)))
        log.close()
        run.events.unlink()
        return growth

    def print_profile(self, stage: str) -> None:
        profiler = cProfile.Profile()
        self.measure_stage(stage, profiler)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(20)

    def _make_state(self, stage: str) -> RunState:
        state = RunState() if stage in ("+ state", "+ job") else NullState()
        description = describe_case(self._case, [self._ranks])
        console = {"time": BASE, "argv": [], "environment": {}, "seed": None}
        state.apply(
            {
                "event": "run_start",
                "id": "benchmark",
                "suite": "collector",
                "description": "",
                "cases": [description],
                **console,
            }
        )
        return state

    def _make_listener(self, stage: str, recorder: Recorder) -> CountingListener:
        if stage == "decode":
            return CountingListener(self._ranks, self._lines)
        if stage != "+ job":
            return RecordingListener(recorder, self._ranks, self._lines)
        case = self._case
        job = Job(1, (case,), self._ranks, case.launch)
        watch = Watchdog(
            np=self._ranks,
            case_repeats=[(case.id, 0)],
            start_timeout=case.launch.start_timeout,
            case_timeouts={case.id: case.launch.timeout},
            launched=time.monotonic(),
        )
        return WatchingListener(JobListener(job, recorder, watch), self._ranks, self._lines)

    async def _collect(
        self, listener: CountingListener, profiler: cProfile.Profile | None
    ) -> StageMeasurement:
        collector = Collector(TOKEN, listener)
        port = await collector.listen(LOOPBACK)
        memory_before = reset_peak_memory()
        self._sender.send(port)
        if profiler is not None:
            profiler.enable()
        await listener.done.wait()
        if profiler is not None:
            profiler.disable()
        growth = read_memory("VmHWM") - memory_before
        await collector.close()
        await asyncio.to_thread(self._sender.recv)
        exit_after_error(listener)
        seconds = listener.last - listener.first
        cpu = listener.last_cpu - listener.first_cpu
        return StageMeasurement(listener.count, seconds, cpu, growth)

    async def _collect_slowly(self, listener: CountingListener) -> tuple[float, float]:
        collector = Collector(TOKEN, listener)
        port = await collector.listen(LOOPBACK)
        memory_before = reset_peak_memory()
        started = time.monotonic()
        self._sender.send(port)
        growths = []
        for seconds in SLOW_SECONDS:
            await asyncio.sleep(started + seconds - time.monotonic())
            growths.append(read_memory("VmHWM") - memory_before)
        await collector.close()
        await asyncio.to_thread(self._sender.recv)
        exit_after_error(listener)
        if listener.done.is_set():
            sys.exit("collector: all was taken before the time was up; give more --lines")
        return growths[0], growths[1]

    def _check_log(self, path: Path) -> None:
        next_seq = [0] * self._ranks
        with path.open("rb") as file:
            for line in file:
                event = json.loads(line)
                if "seq" not in event:  # an event of the console
                    continue
                rank = event["rank"]
                if event["job"] != 1 or event["seq"] != next_seq[rank]:
                    sys.exit(f"collector: rank {rank} has {event['seq']} after {next_seq[rank]}")
                next_seq[rank] += 1
        if set(next_seq) != {self._lines}:
            sys.exit(f"collector: {sum(next_seq)} lines in the log")


class NullState(RunState):
    """A state that ignores all events."""

    def apply(self, event: Mapping[str, Any]) -> None:
        """Ignore the event."""


class CountingListener:
    """Counts events, and stores the times of the first and the last batch."""

    def __init__(self, ranks: int, lines: int) -> None:
        self.done = asyncio.Event()
        self.count = 0
        self.first = self.last = 0.0
        self.first_cpu = self.last_cpu = 0.0
        self.error_text = ""
        self._expected = ranks * lines

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record and count a batch."""
        if not self.count:
            self.first = time.monotonic()
            self.first_cpu = time.process_time()
        try:
            self.record(source, lines, events)
        except Exception as error:
            # The event loop would ignore it, and the benchmark would never end.
            self.on_violation(source, repr(error))
        self.count += len(events)
        if self.count == self._expected:
            self.last = time.monotonic()
            self.last_cpu = time.process_time()
            self.done.set()

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Ignore the batch."""

    def on_violation(self, source: RankConnection, reason: str) -> None:
        """End the benchmark with this error."""
        self.error_text = self.error_text or reason
        self.done.set()

    def on_lost(self, source: RankConnection) -> None:
        """Do nothing: all connections end."""

    def on_relay_lost(self, host: str, ranks: int, reason: str) -> None:
        """End the benchmark with an error: there are no relays."""
        self.error_text = self.error_text or f"relay of {host} {reason}"
        self.done.set()

    def on_rejected(self, peer: str, reason: str) -> None:
        """End the benchmark with this error."""
        self.error_text = self.error_text or reason
        self.done.set()


class RecordingListener(CountingListener):
    """A listener that records each batch."""

    def __init__(self, recorder: Recorder, ranks: int, lines: int) -> None:
        super().__init__(ranks, lines)
        self._recorder = recorder

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record the batch."""
        self._recorder.record_batch(1, lines, events)


class SlowListener(RecordingListener):
    """A listener that records each batch at `SLOW` lines per second."""

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record the batch and wait."""
        super().record(source, lines, events)
        time.sleep(len(events) / SLOW_LINES_PER_S)


class WatchingListener(CountingListener):
    """A listener that passes each batch to a job, like a run."""

    def __init__(self, job_listener: JobListener, ranks: int, lines: int) -> None:
        super().__init__(ranks, lines)
        self._job_listener = job_listener

    def record(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Pass the batch to the job."""
        self._job_listener.on_events(source, lines, events)
        if self._job_listener.failure is not None:
            raise self._job_listener.failure


def exit_after_error(listener: CountingListener) -> None:
    """Exit with the listener's first error, if there is one."""
    if listener.error_text:
        sys.exit(f"collector: {listener.error_text}")


def reset_peak_memory() -> float:
    """Reset this process's peak memory to its present memory; return that in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return read_memory("VmRSS")


def read_memory(field: str) -> float:
    """Return a field of /proc/self/status, in MiB."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


if __name__ == "__main__":
    main()
