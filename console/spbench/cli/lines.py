"""A run in plain lines: for pipes, CI and screen readers, and the ends of cases everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from spbench.record.case_state import CaseState
from spbench.record.judge import not_judged
from spbench.record.limit_share import share_of_limit
from spbench.record.live_stragglers import LiveStragglers
from spbench.record.machine.cores import crowded, fold_numbers
from spbench.record.noise import noise_of
from spbench.record.number_formatting import GLYPHS, clean, counted, number, printable
from spbench.record.phase_words import phase_words
from spbench.record.rank_rows import RankRows
from spbench.record.repeats import repeats_told
from spbench.record.shares import label, shares
from spbench.record.state import RankState, RunState

MOST_WIDTH = 48
"""Columns that ids may take before lines stop standing below each other."""
LAGGED, LOOK = 5.0, 1.0
"""Seconds of the run for which a straggler has lagged when it is told, and between two looks."""
FIRST, AGAIN = 2.0, 10.0
"""Seconds of silence before the phase of a case is told, and before it is told again."""


class Lines:
    """Prints a line when something has happened: the start, each job, each case, the end.

    Attributes:
        rows: The ranks' figures, unless nothing but the verdict is printed.
    """

    def __init__(
        self,
        state: RunState,
        write: Callable[[str], None],
        verbosity: int,
        columns: int | None = None,
    ) -> None:
        self._state = state
        self._output = write
        self._verbosity = verbosity
        self._columns = columns
        self.rows = RankRows(state)
        self._stragglers = LiveStragglers(self.rows, state)
        self._told: set[tuple[str, str | int]] = set()
        self._look_at = 0.0
        self._now = self._tell_at = 0.0
        self._ready: Counter[int] = Counter()
        self._done: set[str] = set()
        self._width = 0

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Print what the event means to a reader, or nothing."""
        if self._verbosity < 0:
            return
        self.rows.take(event)
        self._now = event["time"]
        if event["time"] >= self._look_at:
            self._look_at = event["time"] + LOOK
            self._tell_stragglers()
        printer = getattr(self, f"_on_{event['event']}", None)
        if printer is not None:
            printer(event)
        if event["time"] >= self._tell_at:
            self._tell_phase(event["time"])

    def finish(self, report: str) -> None:
        """Print the verdict, what the run found, and where the report is."""
        run = self._state.run
        for finding in self._state.findings:
            self._write(finding)
        for error in self._state.errors:
            self._write(f"error: {error}")
        if run is not None:
            seconds = (run.finished or run.started) - run.started
            self._write(f"{run.verdict}: {counts(self._state)} in {seconds:.1f} s; {report}")

    def close(self) -> None:
        """Nothing is held open."""

    def _write(self, text: str) -> None:
        self._output(printable(text))
        self._tell_at = self._now + FIRST

    def _tell_stragglers(self) -> None:
        """Name each rank or host that lags, once a case."""
        case = self.rows.case
        if case is None:
            return
        for straggler in self._stragglers.find(LAGGED):
            who = straggler.host if straggler.rank is None else straggler.rank
            if (case.id, who) not in self._told:
                self._told.add((case.id, who))
                self._write(f"  note: {straggler.sentence} in {case.id}")

    def _tell_phase(self, now: float) -> None:
        case, words = self.rows.case, phase_words(self._state, now)
        if case is not None and words:
            self._write(f"        {case.id}: {words}")
            self._tell_at = now + AGAIN

    def _on_run_start(self, event: Mapping[str, Any]) -> None:
        self._width = min(MOST_WIDTH, max(len(case["id"]) for case in event["cases"]))
        what = f": {event['description']}" if event["description"] else ""
        self._write(f"{event['suite']}{what}")
        count = len(event["cases"])
        self._write(f"run {event['id']}, {count} case{'s' * (count != 1)}")
        for sentence in event["environment"].get("other_work", ()):
            self._write(f"  note: {sentence}: times measured beside it are not the hardware's")

    def _on_run_resumed(self, event: Mapping[str, Any]) -> None:
        cases, run = self._state.cases, self._state.run
        self._width = min(MOST_WIDTH, max(map(len, cases)))
        self._done = cases.keys() - set(event["cases"])
        left = f"{len(event['cases'])} of its {len(cases)} cases are left"
        self._write(f"run {run.id if run else '?'} resumes: {left}")

    def _on_retry(self, event: Mapping[str, Any]) -> None:
        self._done -= set(event["cases"])
        self._write(f"again, since they did not pass: {', '.join(event['cases'])}")

    def _on_job_start(self, event: Mapping[str, Any]) -> None:
        self._ready[event["job"]], self._look_at = 0, 0.0
        more = " (more than there are cores: times are not the hardware's)"
        np = f"{event['np']} ranks{more if event['oversubscribed'] else ''}"
        repeat = f", repeat {event['repeat'] + 1}" if "repeat" in event else ""
        beside = ", and so on each host" if "first_rank" in event else ""
        told = f"{event['launcher']}, {event['version']}, {np}{repeat}{beside}"
        if event.get("first_rank", 0) == 0 or self._verbosity > 0:
            self._write(f"job {event['job']}: {told}")
        if self._verbosity > 0:
            self._write("  " + " ".join(event["argv"]))

    def _on_ready(self, event: Mapping[str, Any]) -> None:
        job = self._state.jobs[event["job"]]
        if self._verbosity > 0:
            self._write("  " + describe_rank(self._state.ranks[event["rank"]]))
        self._ready[job.number] += 1
        if self._ready[job.number] == job.np:
            sharing = crowded(rank for rank in self._state.ranks.values() if rank.cpus)
            if sharing and not job.oversubscribed:
                self._write(f"  note: {sharing}")

    def _on_case_judged(self, event: Mapping[str, Any]) -> None:
        self._done.add(event["case"])
        case = self._state.cases[event["case"]]
        total = len(self._state.cases)
        count = f"[{len(self._done):>{len(str(total))}}/{total}] "
        room = self._columns - len(count) if self._columns else None
        self._write(count + case_line(case, self._width, room))
        if event["reason"]:
            self._write(f"        {event['reason']}")
        if told := repeats_told(case):
            self._write(f"        {told}")
        if case.verdict.word == "flaky":
            self._write(f"        it passed at try {case.verdict.attempts}")
        if noise := noise_of(case):
            self._write(f"        noisy: {noise}")
        for sentence in not_judged(case):
            self._write(f"        {sentence}")
        for line in share_lines(case, self._columns):
            self._write(line)
        if self._verbosity > 0 and case.verdict.traceback:
            self._write(case.verdict.traceback.rstrip())

    def _on_log(self, event: Mapping[str, Any]) -> None:
        if event["level"] in ("where", "loading"):
            return
        if self._verbosity > 0 or event["level"] not in ("info", "line"):
            self._write(f"        rank {event['rank']}: {event['message']}")


def case_line(case: CaseState, width: int = 0, room: int | None = None) -> str:
    """Return a judged case in one line: verdict, id, time beside its limit, checks.

    Args:
        case: The case.
        width: Columns for the id, so that lines stand below each other.
        room: Columns for the whole line: what does not fit is left out, the report has it all.
    """
    line = f"{GLYPHS.get(case.status, '?')} {case.verdict.word:<9} {clean(case.id):<{width}}"
    for part in _parts(case):
        if room is not None and len(line) + 2 + len(part.rstrip()) > room:
            break
        line += f"  {part}"
    return line.rstrip()


def share_lines(case: CaseState, columns: int | None = None) -> Iterator[str]:
    """Yield where a case's time went, in lines of so many columns."""
    for of in shares(case):
        told = f"{of.title}: {of.words}"
        width = max(columns or len(told) + 8, 24)
        yield from wrap(told, width, initial_indent=" " * 8, subsequent_indent=" " * 10)


def _parts(case: CaseState) -> Iterator[str]:
    """The parts of a case's line, the most important first; shares have a line of their own."""
    times = case.summary("time_ms")
    if times is not None:
        yield f"{number(times.p50):>8} ms"
    told, passed = check_ranks(case)
    if told:
        yield f"checks {len(passed)}/{len(told)}"
    limit = case.measured.limits.get("time_ms", {}).get("value")
    share = share_of_limit(times.p50, limit) if times is not None else None
    if limit and share is not None:
        yield f"{100 * share:>3.0f} % of limit {number(limit):<8}"
    for name, choice in case.measured.choices.items():
        yield f"{name} {_chosen(name, choice):<8}"
    if times is not None:
        yield f"p99 {number(times.p99):<7}"
    for name, info in case.identity.metrics.items():
        if name == "time_ms" or info.better == "none" or info.part_of:
            continue
        summary = case.summary(name)
        if summary is not None:
            yield f"{label(info)} {number(summary.p50)} {info.unit}".removesuffix(" 1")


def _chosen(name: str, choice: Mapping[str, str]) -> str:
    """Return what was chosen; of the host, whether because there was no GPU."""
    fell = name == "device" and choice["value"] == "cpu" and choice["reason"].startswith("auto")
    return choice["value"] + " (auto)" * fell


def check_ranks(case: CaseState) -> tuple[set[int], set[int]]:
    """Return the ranks that reported checks, and those of them that passed all."""
    checked = case.measured.checked
    return set(checked), {rank for rank, passed in checked.items() if passed}


def counts(state: RunState) -> str:
    """Return ``11 passed, 1 failed, 1 expectation not judged``."""
    statuses = [case.status for case in state.cases.values()]
    parts = [f"{statuses.count(status)} {status}" for status in GLYPHS if status in statuses]
    flaky = sum(case.verdict.word == "flaky" for case in state.cases.values())
    parts += [f"{flaky} of them only on retry"] if flaky else []
    unjudged = sum(1 for case in state.cases.values() for _ in not_judged(case))
    parts += [f"{counted(unjudged, 'expectation')} not judged"] if unjudged else []
    return ", ".join(parts) or "no case"


def describe_rank(rank: RankState) -> str:
    """Return where a rank runs, in one line."""
    cpus = fold_numbers(rank.cpus)
    versions = ", ".join(f"{name} {text}" for name, text in rank.versions.items() if text)
    numa = "" if rank.numa is None else f", NUMA node {rank.numa}"
    return (
        f"rank {rank.rank} on {rank.host} (local rank {rank.local_rank}): {rank.device}, "
        f"CPUs {cpus}{numa}, {rank.threads} threads, {rank.fabric}; {versions}"
    )
