"""A run in plain lines: for pipes, CI and screen readers, and for recorded runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from spbench.cli.runs.case_details import CASE_INDENT, render_detail_legend, render_details
from spbench.cli.runs.case_table import CaseTable
from spbench.cli.text_layout import indent_text, output_width
from spbench.errors import UsageError
from spbench.record.case_state import CaseState
from spbench.record.judge import describe_not_judged
from spbench.record.live_stragglers import LiveStragglers
from spbench.record.machine.core_sharing import describe_sharing, summarize_sharing
from spbench.record.messages.cases import describe_repeats
from spbench.record.messages.outcome import count_results
from spbench.record.messages.phases import describe_phase
from spbench.record.messages.stragglers import describe_lags
from spbench.record.noise import read_other_work, remove_other_work
from spbench.record.number_formatting import fold_numbers, format_duration, replace_line_controls
from spbench.record.planted_faults import format_result_count
from spbench.record.rank_rows import RankRows
from spbench.record.run_parts import RankState
from spbench.record.state import RunState
from spbench.report.text_tables import PIPE_WIDTH, cut_middle
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CaseStatus, LogLevel
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.run_estimate import RunEstimate
    from spbench.record.runs.folder import RunFolder

LAG_SECONDS = 5.0
"""Seconds for which a straggler must lag to be reported."""
LOOK_INTERVAL = 1.0
"""Seconds of the run between two searches for stragglers."""
FIRST_PHASE_DELAY = 2.0
"""Seconds without output before the phase of a case is printed."""
PHASE_INTERVAL = 10.0
"""Seconds without output before the phase of a case is printed again."""
MAX_FAILURES = 12
"""The most failed cases with a reason in a quiet run."""


class LineView:
    """A view that prints a line at the start and the end, and for each job and case.

    Attributes:
        rows: The times of ranks, unless only the status of the run is printed.
    """

    def __init__(
        self,
        state: RunState,
        write: Callable[[str], None],
        verbosity: int,
        columns: int | None = None,
        next_step: str = "",
        estimate: RunEstimate | None = None,
    ) -> None:
        """Print a run.

        Args:
            state: The run; it applies each event before this view.
            write: Prints a line.
            verbosity: -1 for the status of the run only, 1 for details of ranks and cases.
            columns: The most columns of a line; None for those of a pipe.
            next_step: A suggestion for after the run, for the last line.
            estimate: The estimated time of the run.
        """
        self._state = state
        self._output = write
        self._verbosity = verbosity
        self._width = columns or PIPE_WIDTH
        self._next_step = next_step
        self._estimate = estimate
        self.rows = RankRows(state)
        self._stragglers = LiveStragglers(self.rows, state)
        self._reported: set[tuple[str, str | int]] = set()
        self._next_look = 0.0
        self._now = self._next_phase = 0.0
        self._ready: Counter[int] = Counter()
        self._done: set[str] = set()
        self._launchers: set[tuple[str, str]] = set()
        self._sharing_reported = False
        self._remarks: set[str] = set()
        self._table: CaseTable | None = None
        self._printers: dict[str, Callable[[Event], None]] = {
            "run_start": self._print_run_start,
            "run_resumed": self._print_run_resumed,
            "retry": self._print_retry,
            "job_start": self._print_job_start,
            "ready": self._print_ready,
            "case_judged": self._print_case_judged,
            "log": self._print_log,
        }

    def __call__(self, event: Event) -> None:
        """Print an event if it matters to a reader."""
        if self._verbosity < 0:
            return
        self.rows.update(event)
        self._now = event["time"]
        if event["time"] >= self._next_look:
            self._next_look = event["time"] + LOOK_INTERVAL
            self._report_stragglers()
        if (print_event := self._printers.get(event["event"])) is not None:
            print_event(event)
        if event["time"] >= self._next_phase:
            self._report_phase(event["time"])

    def finish(self, report: str) -> None:
        """Print the legend, the findings, the status of the run, and where the report is."""
        run = self._state.run
        if self._verbosity >= 0 and self._table is not None:
            for line in self._table.render_legend():
                self._write_wrapped(line)
            if self._verbosity > 0:
                for line in render_detail_legend(self._state.cases.values(), self._state.jobs):
                    self._write_wrapped(line)
        if self._verbosity < 0:
            self._report_failures()
        for finding in self._list_findings():
            self._write_wrapped(finding)
        for error in self._state.errors:
            self._write(f"error: {error}")
        if run is not None:
            seconds = (run.finished or run.started) - run.started
            duration = format_duration(seconds)
            self._write_wrapped(f"{run.status}: {count_statuses(self._state)} in {duration}")
            self._write(report)
        if self._next_step and self._verbosity >= 0:
            self._write_wrapped(f"next: {self._next_step}")

    def close(self) -> None:
        """Do nothing, since no resource is open."""

    def _list_findings(self) -> Iterator[str]:
        """Yield the findings of the run, without those that were printed above the table."""
        sharing = summarize_sharing(self._state) if self._sharing_reported else None
        above = read_other_work(self._state) if self._verbosity >= 0 else ()
        for finding in remove_other_work(self._state.findings, above):
            if finding != sharing:
                yield finding

    def _write(self, text: str) -> None:
        self._output(replace_line_controls(text))
        self._next_phase = self._now + FIRST_PHASE_DELAY

    def _write_wrapped(self, text: str, indent: str = "") -> None:
        for line in indent_text(text, self._width, indent):
            self._write(line)

    def _report_failures(self) -> None:
        """Print why cases did not pass, for a run without a table."""
        failed = [case for case in self._state.cases.values() if case.execution.reason]
        for case in failed[:MAX_FAILURES]:
            self._write_wrapped(f"{case.id}: {case.status}, {case.execution.reason}")
        if len(failed) > MAX_FAILURES:
            self._write(f"{format_quantity(len(failed) - MAX_FAILURES, 'more case')} did not pass")

    def _report_stragglers(self) -> None:
        """Report each rank or host that lags, once per case."""
        for lag in self._stragglers.find_lags(LAG_SECONDS):
            straggler = lag.straggler
            subject = straggler.host if straggler.rank is None else straggler.rank
            if (lag.case.id, subject) not in self._reported:
                self._reported.add((lag.case.id, subject))
                (message,) = describe_lags([lag])
                self._write_wrapped(f"note: {message}", "  ")

    def _report_phase(self, now: float) -> None:
        case = self.rows.case
        phase = describe_phase(self._state, now)
        if case is not None and phase:
            suite_left = f"; suite: {text}" if (text := self.format_remaining(now)) else ""
            for line in self._table.render_new_header(case) if self._table is not None else ():
                self._write(line)
            id_width = max(8, self._width - len(CASE_INDENT) - len(phase) - len(suite_left) - 2)
            self._write(f"{CASE_INDENT}{cut_middle(case.id, id_width)}: {phase}{suite_left}")
            self._next_phase = now + PHASE_INTERVAL

    def format_remaining(self, now: float) -> str:
        """Return the remaining time of the run, ``about 40 s left``; empty if unknown."""
        if self._estimate is None:
            return ""
        from spbench.engine.remaining_time import estimate_remaining, format_remaining

        return format_remaining(estimate_remaining(self._state, self._estimate, now))

    def _print_run_start(self, event: Event) -> None:
        self._start_table()
        description = f": {event['description']}" if event["description"] else ""
        self._write_wrapped(f"{event['suite']}{description}")
        duration = self._estimate.text if self._estimate is not None else ""
        cases = format_quantity(len(event["cases"]), "case")
        self._write_wrapped(f"run {event['id']}: {cases}{f', {duration}' if duration else ''}")
        if reasons := "; ".join(event["environment"].get("other_work", ())):
            self._write_wrapped(f"warning: the machine is busy ({reasons}): times may be inflated")

    def _print_run_resumed(self, event: Event) -> None:
        self._start_table()
        cases = self._state.cases
        run = self._state.run
        self._done = cases.keys() - set(event["cases"])
        left = f"{len(event['cases'])} of its {len(cases)} cases are left"
        self._write(f"run {run.id if run else '?'} resumes: {left}")

    def _start_table(self) -> None:
        self._table = CaseTable(self._state.cases, self._state.jobs, self._width)

    def _print_retry(self, event: Event) -> None:
        self._done -= set(event["cases"])
        self._write_wrapped(f"retrying cases that did not pass: {', '.join(event['cases'])}")

    def _print_job_start(self, event: Event) -> None:
        self._ready[event["job"]] = 0
        self._next_look = 0.0
        launcher = (event["launcher"], event["version"])
        if self._verbosity > 0:
            repeat = f", repeat {event['repeat'] + 1}" if "repeat" in event else ""
            ranks = format_quantity(event["np"], "rank")
            self._write(f"job {event['job']}: {', '.join(launcher)}, {ranks}{repeat}")
            self._write("  " + " ".join(event["argv"]))
        elif launcher not in self._launchers:
            self._write(", ".join(launcher))
        self._launchers.add(launcher)

    def _print_ready(self, event: Event) -> None:
        job = self._state.jobs[event["job"]]
        if self._verbosity > 0:
            self._write("  " + describe_rank(self._state.ranks[event["rank"]]))
        self._ready[job.number] += 1
        if self._ready[job.number] == job.np and not self._sharing_reported:
            sharing = describe_sharing(job)
            if sharing is not None:
                self._sharing_reported = True
                self._write_wrapped(f"warning: {sharing}")

    def _print_case_judged(self, event: Event) -> None:
        self._done.add(event["case"])
        case = self._state.cases[event["case"]]
        if self._table is None:
            self._start_table()
        assert self._table is not None
        for line in self._table.render_case(case, len(self._done)):
            self._write(line)
        for remark in list_remarks(case, event["reason"]):
            self._write_wrapped(remark, CASE_INDENT)
        for remark in describe_not_judged(case):
            if remark not in self._remarks:  # all cases of a sweep have the same
                self._remarks.add(remark)
                self._write_wrapped(remark, CASE_INDENT)
        if self._verbosity > 0:
            shown = self._table.metrics_in_row(case)
            for line in render_details(case, self._state.jobs, self._width, shown):
                self._write(line)
            if case.execution.traceback:
                self._write(case.execution.traceback.rstrip())

    def _print_log(self, event: Event) -> None:
        if event["level"] in (LogLevel.WHERE, LogLevel.LOADING):
            return
        if self._verbosity > 0 or event["level"] not in (LogLevel.INFO, LogLevel.LINE):
            self._write(f"        rank {event['rank']}: {event['message']}")


def list_remarks(case: CaseState, reason: str | None) -> Iterator[str]:
    """Yield the remarks on a judged case below its row."""
    if reason:
        yield reason
    if repeats := describe_repeats(case):
        yield repeats
    if case.execution.shown_status == CaseStatus.FLAKY:
        yield f"passed on attempt {case.execution.attempts}"


def count_statuses(state: RunState) -> str:
    """Return ``11 passed, 1 failed, 1 expectation not judged``."""
    cases = state.cases.values()
    counts = count_results(cases)
    parts = [format_result_count(count, result) for result, count in counts.items()]
    flaky = sum(case.execution.shown_status == CaseStatus.FLAKY for case in cases)
    parts += [f"{flaky} of them only on retry"] if flaky else []
    unjudged = sum(1 for case in cases for _ in describe_not_judged(case))
    parts += [f"{format_quantity(unjudged, 'expectation')} not judged"] if unjudged else []
    return ", ".join(parts) or "no case"


def describe_rank(rank: RankState) -> str:
    """Return where a rank runs, in one line."""
    facts = rank.facts
    versions = ", ".join(f"{name} {text}" for name, text in facts.versions.items() if text)
    numa = "" if facts.numa is None else f", NUMA node {facts.numa}"
    return (
        f"rank {rank.rank} on {facts.host} (local rank {facts.local_rank}): {facts.device}, "
        f"CPUs {fold_numbers(facts.cpus)}{numa}, {format_quantity(facts.threads or 0, 'thread')}, "
        f"{facts.fabric}; {versions}"
    )


def replay_lines(
    folder: RunFolder, speed: float | None, write: Callable[[str], None], verbosity: int
) -> None:
    """Print a recorded run in lines, at a speed; None for the highest speed.

    Raises:
        UsageError: The log cannot be read, or does not begin with a run.
    """
    from spbench.record.runs.follow import RecordedEvents
    from spbench.record.runs.playback import Playback, play_paced

    state = RunState()
    lines = LineView(state, write, verbosity, output_width(sys.stdout))
    events = RecordedEvents(folder.events)
    for event in play_paced(Playback(events, speed), time.monotonic, time.sleep):
        state.apply(event)
        lines(event)
    if state.run is None and events.skipped_message:
        raise UsageError(f"the beginning of this run is lost: {events.skipped_message}")
    if events.skipped_message:
        write(replace_line_controls(events.skipped_message))
    if state.run is not None and state.run.finished is not None:
        lines.finish(folder.report_line)
    else:
        write(replace_line_controls(describe_unfinished(folder)))


def describe_unfinished(folder: RunFolder) -> str:
    """Return the last line of a run without an end in its events."""
    alive = folder.is_alive()
    host = folder.find_other_host()
    if alive is None:
        end = f"still running on {host}, as far as its log shows"
    elif host is not None:
        end = f"nothing came from the console on {host} for long"
    else:
        end = "still running" if alive else "the console ended before the run did"
    return f"unfinished: {end}; events: {folder.events}"
