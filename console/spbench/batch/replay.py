"""One launch of a batch job replayed: its ranks' events, as a console would have heard them."""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spbench.batch.plan_file import BatchLaunch
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
from spbench_core.events.batch_files import LaunchFolder, read_complete_lines, signal_name
from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import HEARTBEAT_INTERVAL, decode
from spbench_core.events.statuses import CaseStatus

_SLACK = 2 * HEARTBEAT_INTERVAL
"""Seconds that a rank's last word may be before its own deadline, at which it ends itself."""
_LATEST = 86400.0
"""Seconds by which a rank's clock may be ahead and still be believed."""


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
        """Go on to a time, unless a clock that is far ahead has told it."""
        if self.now < time < latest + _LATEST:
            self.now = time


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The outcome of a launch.

    Attributes:
        fault: What went wrong; None also where it still goes on.
        current: The case that was not through.
        failure: A defect of ours that the events have met.
    """

    fault: Fault | None
    current_case: str | None
    failure: Exception | None = None


class LaunchReplay:
    """Replays one launch.

    Args:
        number: The job's number in the run.
        planned: The job as planned.
        folder: The launch's folder.
        cases: The cases that count here: those that no later launch runs again.
        described: The cases by id, as ``run_start`` describes them.
        recorder: The run's recorder.
        clock: The run's clock, which stands at the launch's start.
    """

    def __init__(
        self,
        number: int,
        planned: BatchLaunch,
        folder: LaunchFolder,
        cases: Sequence[str],
        described: Mapping[str, Mapping[str, Any]],
        recorder: Recorder,
        clock: ReplayClock,
    ) -> None:
        self._planned = planned
        self._folder = folder
        self._clock = clock
        self._cases = set(cases)
        self._left_out = {case["id"] for case in folder.read_cases()} - self._cases
        self._faulty_before = False
        self._launcher = _launcher(planned.launcher)
        self.sources = [RankFile(path) for path in folder.list_event_files()]
        entries = [case for case in folder.read_cases() if case["id"] in self._cases]
        self.watch = Watchdog(
            np=planned.np,
            items=[(case["id"], case["repeat"]) for case in entries],
            start_timeout=planned.start_timeout,
            case_timeouts={case: planned.timeouts[case] for case in cases},
            launched=clock.now,
            names=f"{planned.launcher} ({planned.version}) and {planned.library}",
        )
        counted = tuple(_case(described[case], planned.timeouts[case]) for case in cases)
        job = Job(number, counted, planned.np, LaunchSettings())
        self._listener = JobListener(job, recorder, self.watch, clock)

    def run(self, *, goes_on: bool) -> ReplayResult:
        """Replay the events, then say what is missing; where it still goes on nothing is."""
        latest = max((s.path.stat().st_mtime for s in self.sources), default=self._clock.now)
        for item in merge_events(self.sources):
            self._clock.advance(item.time, latest)
            self._take(item)
        fault = None if goes_on else self._fault()
        if fault is not None:
            self._listener.record_lost(fault)
        end = self._folder.end
        if end is not None:
            self._clock.advance(end.time, end.time)
        current = self.watch.current
        return ReplayResult(fault, current[0] if current else None, self._listener.failure)

    def _take(self, item: FileEvent) -> None:
        before = self.watch.fault
        if item.event is None:
            self._listener.on_violation(item.source, item.error)
        elif item.event.get("case") not in self._left_out:
            event = item.event
            shown = {**event, "token": "shown"} if event["event"] == "hello" else event
            self._listener.on_events(item.source, [item.line], [shown])
            item.source.last = item.time
        if before is None and self.watch.fault is not None:
            stopped = self._folder.end.signal_time if self._folder.end else None
            self._faulty_before = stopped is None or item.time < stopped

    def _fault(self) -> Fault | None:
        end = self._folder.end
        watch = self.watch
        if watch.done and watch.fault is None:
            return None
        if end is not None and end.signal is not None and not self._faulty_before:
            after = (end.signal_time or end.time) - watch.launched
            name = signal_name(end.signal)
            return Fault(
                CaseStatus.CANCELLED, f"the batch job got {name} {after:.1f} s into this launch"
            )
        told = self._listener.where
        # a rank keeps its own deadline, and the console's counts from the last one's start
        fault = watch.find_overdue(self._clock.now, _SLACK + watch.start_spread if told else 0.0)
        if fault is not None and fault.status == CaseStatus.TIMEOUT:
            return watch.add_locations(fault, told)
        return self._judged(fault)

    def _judged(self, fault: Fault | None) -> Fault:
        """Return the cause, by all that ranks, their files and the launcher tell."""
        # ranks that are alone each end without the others' bye, and none of them is to blame
        alone = self.watch.misfit is not None
        settled = fault is not None and (alone or not self.watch.tentative)
        for source in sorted(self.sources, key=lambda source: source.last):
            if not settled:
                self._listener.on_lost(source)
        evidence = self._evidence()
        found = fault if settled else find_cause(evidence) or self.watch.fault
        found = found or Fault(CaseStatus.ERROR, "no rank wrote events")
        if found.traceback is not None:
            return found
        more = evidence.stderr_text or evidence.launcher_report.message
        if found.rank is None and more and more not in found.message:
            found = replace(found, message=f"{more}; {found.message}")
        elif settled and more:
            found = replace(found, message=f"{found.message}: {more}")
        if self._folder.end is None or not self.sources:
            found = replace(found, message=f"{found.message}; {self._exit_sentence()}")
        return found

    def _evidence(self) -> Evidence:
        watch = self.watch
        now = self._clock.now
        end = self._folder.end
        output = read_output(self._folder.path)
        return Evidence(
            observations=watch.observations,
            launcher_report=self._launcher.parse_output(output),
            describe_rank=lambda rank: watch.describe_rank(rank, end.time if end else now),
            waited_for=watch.unconnected,
            quiet=watch.find_quiet(now),
            launcher=self._planned.launcher,
            status=end.status if end else None,
            misfit=watch.misfit,
            stderr_text=extract_rank_stderr(output),
        )

    def _exit_sentence(self) -> str:
        end = self._folder.end
        if end is None:
            return "the batch job was killed, or its node failed: it left no status"
        return f"the launcher ended with status {end.status} after {self._after(end.time):.1f} s"

    def _after(self, time: float) -> float:
        return time - self.watch.launched


def _launcher(name: str) -> Launcher:
    if name == FluxRun.name:
        return FluxRun()
    return load_launcher(name)


def _case(described: Mapping[str, Any], timeout: float) -> Case:
    """Return a case as far as the listener of a job needs it."""
    fields = {name: described[name] for name in ("id", "name", "benchmark", "params", "np")}
    more = {"repeat": described["repeat"], "inject": described["inject"]}
    return Case(**fields, **more, expect=(), launch=LaunchSettings(timeout=timeout), line=0)


class RankFile:
    """The file of one rank, in place of a connection.

    Args:
        path: The file, whose name begins with the rank's host.

    Attributes:
        last: When its last event was said.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = RankIdentity(path.name.rsplit("-", 2)[0], 0, None)
        self.rank: int | None = None
        self.ended = False
        self.last = 0.0

    def reply(self, **fields: Any) -> None:
        """Answer nothing: nobody waits."""


@dataclass(frozen=True, slots=True, order=True)
class FileEvent:
    """One event of a file, or in its place what is wrong there; the order is that of times."""

    time: float
    source: RankFile = field(compare=False)
    line: bytes = field(default=b"", compare=False)
    event: Event | None = field(default=None, compare=False)
    error: str = field(default="", compare=False)


def merge_events(sources: Sequence[RankFile]) -> Iterator[FileEvent]:
    """Yield the events of all files in the order of their times; each file's own order is kept."""
    return heapq.merge(*map(_events, sources))


def _events(source: RankFile) -> Iterator[FileEvent]:
    """Yield a file's events up to the first line that is wrong, as the collector takes them."""
    at = 0.0
    try:
        for due, line in enumerate(read_complete_lines(source.path)):
            event = _checked(source, line, due)
            # a clock that is set back must not put a line before an earlier one
            at = max(at, float(event["time"]))
            yield FileEvent(at, source, line, event)
    except EventError as error:
        yield FileEvent(at, source, error=str(error))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # no fault of the rank's
            raise
        yield FileEvent(at, source, error=f"left a file that cannot be read: {error.strerror}")


def _checked(source: RankFile, line: bytes, due: int) -> Event:
    try:
        event = decode(line)
    except EventError as error:
        raise EventError(f"wrote a line {due + 1} that is no event: {error}") from None
    if event["seq"] != due:
        raise EventError(f"wrote event {event['seq']} where {due} was due")
    if (event["event"] == "hello") != (due == 0):
        raise EventError("did not begin with hello" if due == 0 else "said hello twice")
    if due == 0:
        source.identity = RankIdentity(event["host"], event["pid"], event.get("rank"))
    return event
