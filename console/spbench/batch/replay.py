"""Replay one launch of a batch job from the event files of its ranks."""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spbench.batch.plan_file import PlannedJob
from spbench.batch.schedulers.flux import FluxRun
from spbench.engine.connections.rank_connection import RankIdentity
from spbench.engine.faults.cause import Evidence, find_cause
from spbench.engine.faults.fault import Fault
from spbench.engine.faults.launcher_output import extract_rank_stderr, read_output
from spbench.engine.job_listener import JobListener
from spbench.engine.recorder import Recorder
from spbench.engine.watchdog import Watchdog
from spbench.launch.detect import load_launcher
from spbench.launch.jobs import Job
from spbench.launch.launcher import Launcher
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.events.batch_files import LaunchFolder, make_signal_name, read_complete_lines
from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import HEARTBEAT_INTERVAL, decode
from spbench_core.events.statuses import CaseStatus

_SLACK = 2 * HEARTBEAT_INTERVAL
"""Seconds between a rank's last event and its deadline, at which it ends itself."""
_MAX_AHEAD = 86400.0
"""Seconds by which a rank's clock may be ahead; later times are ignored."""


class ReplayClock:
    """The time of a replay: that of the last event, never going back.

    Args:
        now: Its beginning, in seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, time: float, latest: float) -> None:
        """Advance to a time, unless it comes from a clock that is far ahead."""
        if self.now < time < latest + _MAX_AHEAD:
            self.now = time


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of replaying a launch.

    Attributes:
        fault: The fault of the launch; None if there was none, or if it still runs.
        current_case: The case that had not ended.
        failure: An unexpected exception (a defect of spbench) while events were processed.
    """

    fault: Fault | None
    current_case: str | None
    failure: Exception | None = None


class LaunchReplay:
    """Replays one launch.

    Args:
        number: The job's number in the run.
        planned_job: The job as planned.
        folder: The launch's folder.
        cases: The ids of the cases that no later launch runs again.
        case_by_id: The cases in the form of the event ``run_start``.
        recorder: The run's recorder.
        clock: The run's clock, set to the launch's start.
    """

    def __init__(
        self,
        number: int,
        planned_job: PlannedJob,
        folder: LaunchFolder,
        cases: Sequence[str],
        case_by_id: Mapping[str, Mapping[str, Any]],
        recorder: Recorder,
        clock: ReplayClock,
    ) -> None:
        self._planned_job = planned_job
        self._folder = folder
        self._clock = clock
        entries = folder.read_cases()
        self._left_out = {case["id"] for case in entries} - set(cases)
        self._faulty_before_stop = False
        self._launcher = _load_launcher(planned_job.launcher)
        self.sources = [RankFile(path) for path in folder.list_event_files()]
        self.watch = Watchdog(
            np=planned_job.np,
            case_repeats=[(case["id"], case["repeat"]) for case in entries if case["id"] in cases],
            start_timeout=planned_job.start_timeout,
            case_timeouts={case: planned_job.timeouts[case] for case in cases},
            launched=clock.now,
            names=f"{planned_job.launcher} ({planned_job.version}) and {planned_job.library}",
        )
        job_cases = tuple(
            _make_case(case_by_id[case], planned_job.timeouts[case]) for case in cases
        )
        job = Job(number, job_cases, planned_job.np, LaunchSettings())
        self._listener = JobListener(job, recorder, self.watch, clock)

    def run(self, *, still_runs: bool) -> ReplayResult:
        """Replay the events, then find the fault of a launch that does not run any more."""
        latest = max((s.path.stat().st_mtime for s in self.sources), default=self._clock.now)
        for file_event in merge_events(self.sources):
            self._clock.advance(file_event.time, latest)
            self._process(file_event)
        fault = None if still_runs else self._find_fault()
        if fault is not None:
            self._listener.record_lost(fault)
        end = self._folder.end
        if end is not None:
            self._clock.advance(end.time, end.time)
        current = self.watch.current
        return ReplayResult(fault, current[0] if current else None, self._listener.failure)

    def _process(self, file_event: FileEvent) -> None:
        earlier_fault = self.watch.fault
        event = file_event.event
        if event is None:
            self._listener.on_violation(file_event.source, file_event.error)
        elif event.get("case") not in self._left_out:
            if event["event"] == "hello":
                event = {**event, "token": "shown"}
            self._listener.on_events(file_event.source, [file_event.line], [event])
            file_event.source.last = file_event.time
        if earlier_fault is None and self.watch.fault is not None:
            stop_time = self._folder.end.signal_time if self._folder.end else None
            self._faulty_before_stop = stop_time is None or file_event.time < stop_time

    def _find_fault(self) -> Fault | None:
        end = self._folder.end
        watch = self.watch
        if watch.done and watch.fault is None:
            return None
        if end is not None and end.signal is not None and not self._faulty_before_stop:
            elapsed = (end.signal_time or end.time) - watch.launched
            name = make_signal_name(end.signal)
            return Fault(
                CaseStatus.CANCELLED, f"the batch job got {name} {elapsed:.1f} s into this launch"
            )
        positions = self._listener.positions
        # Each rank keeps its own deadline; that of a console counts from the start of the last
        # rank.
        fault = watch.check_deadlines(
            self._clock.now, _SLACK + watch.start_spread if positions else 0.0
        )
        if fault is not None and fault.status == CaseStatus.TIMEOUT:
            return watch.add_locations(fault, positions)
        return self._find_cause(fault)

    def _find_cause(self, fault: Fault | None) -> Fault:
        """Return the cause, from events, files and the launcher's output."""
        # After a protocol fault, ranks do not know each other, and each ends without the last event
        # of the others. None of them is to blame.
        has_protocol_fault = self.watch.protocol_fault is not None
        is_final = fault is not None and (has_protocol_fault or not self.watch.tentative)
        for source in sorted(self.sources, key=lambda source: source.last):
            if not is_final:
                self._listener.on_lost(source)

        evidence = self._collect_evidence()
        if not is_final:
            fault = find_cause(evidence) or self.watch.fault
        fault = fault or Fault(CaseStatus.ERROR, "no rank wrote events")
        if fault.traceback is not None:
            return fault
        output = evidence.stderr_text or evidence.launcher_report.message
        if fault.rank is None and output and output not in fault.message:
            fault = replace(fault, message=f"{output}; {fault.message}")
        elif is_final and output:
            fault = replace(fault, message=f"{fault.message}: {output}")
        if self._folder.end is None or not self.sources:
            fault = replace(fault, message=f"{fault.message}; {self._describe_exit()}")
        return fault

    def _collect_evidence(self) -> Evidence:
        watch = self.watch
        now = self._clock.now
        end = self._folder.end
        output = read_output(self._folder.path)
        end_time = end.time if end else now
        return Evidence(
            observations=watch.observations,
            launcher_report=self._launcher.parse_output(output),
            describe_rank=lambda rank, host: watch.describe_rank(rank, end_time, host),
            unconnected=watch.unconnected,
            quiet=watch.find_quiet(now),
            launcher=self._planned_job.launcher,
            status=end.status if end else None,
            protocol_fault=watch.protocol_fault,
            stderr_text=extract_rank_stderr(output),
        )

    def _describe_exit(self) -> str:
        end = self._folder.end
        if end is None:
            return "the batch job was killed, or its node failed: it left no status"
        elapsed = end.time - self.watch.launched
        return f"the launcher ended with status {end.status} after {elapsed:.1f} s"


def _load_launcher(name: str) -> Launcher:
    if name == FluxRun.name:
        return FluxRun()
    return load_launcher(name)


def _make_case(described: Mapping[str, Any], timeout: float) -> Case:
    """Return a case with the fields that the listener of a job needs."""
    fields = {name: described[name] for name in ("id", "name", "benchmark", "params", "np")}
    more = {"repeat": described["repeat"], "inject": described["inject"]}
    return Case(**fields, **more, expect=(), launch=LaunchSettings(timeout=timeout), line=0)


class RankFile:
    """The file of one rank, with the interface of a rank's connection.

    Args:
        path: The file; its name begins with the rank's host.

    Attributes:
        last: The time of the rank's last event.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = RankIdentity(path.name.rsplit("-", 2)[0], 0, None)
        self.rank: int | None = None
        self.ended = False
        self.last = 0.0

    def reply(self, **fields: Any) -> None:
        """Ignore a reply, because the rank does not read any: it ran without a console."""


@dataclass(frozen=True, slots=True, order=True)
class FileEvent:
    """One event of a file, or the error at its line; ordered by time."""

    time: float
    source: RankFile = field(compare=False)
    line: bytes = field(default=b"", compare=False)
    event: Event | None = field(default=None, compare=False)
    error: str = field(default="", compare=False)


def merge_events(sources: Sequence[RankFile]) -> Iterator[FileEvent]:
    """Yield the events of all files by time; events of one file keep their order."""
    return heapq.merge(*map(_read_events, sources))


def _read_events(source: RankFile) -> Iterator[FileEvent]:
    """Yield the events of a file up to the first invalid line, like the collector."""
    time = 0.0
    try:
        for number, line in enumerate(read_complete_lines(source.path)):
            event = _decode_line(source, line, number)
            # If a rank's clock was set back, its lines still keep their order.
            time = max(time, float(event["time"]))
            yield FileEvent(time, source, line, event)
    except EventError as error:
        yield FileEvent(time, source, error=str(error))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # too many open files here, not the rank's
            raise
        yield FileEvent(time, source, error=f"left a file that cannot be read: {error.strerror}")


def _decode_line(source: RankFile, line: bytes, number: int) -> Event:
    try:
        event = decode(line)
    except EventError as error:
        raise EventError(f"wrote a line {number + 1} that is no event: {error}") from None
    if event["seq"] != number:
        raise EventError(f"wrote event {event['seq']} where {number} was due")
    if (event["event"] == "hello") != (number == 0):
        raise EventError("did not begin with hello" if number == 0 else "said hello twice")
    if number == 0:
        source.identity = RankIdentity(event["host"], event["pid"], event.get("rank"))
    return event
