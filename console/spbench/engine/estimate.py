"""Estimates of the duration of a run before it starts.

A case that this home has already run on the same hosts takes as long as it took there. The duration
of any other case follows from its work, by the speed of a core as it was measured once.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from spbench.engine.plan import Request, RunPlan, runs_here
from spbench.engine.resume import plan_recorded
from spbench.errors import SpbenchError
from spbench.launch.gpu_needs import may_use_gpu
from spbench.launch.hosts.names import is_local
from spbench.launch.jobs import Job
from spbench.launch.load import load_here
from spbench.launch.placement import cores
from spbench.record.number_formatting import format_duration
from spbench.record.runs.case_work import work_of
from spbench.record.runs.folder import RunFolder
from spbench.suites.case import Case
from spbench_core.catalog.work import Work
from spbench_core.quantities import format_quantity

if TYPE_CHECKING:
    from spbench.record.runs.index import PastDuration

NEWEST = 5
"""Recorded runs of a case that count: their median is its duration."""
WITHIN = 5
"""The factor within which an estimate from the work is meant to be."""

# Fitted on 2026-11-27 to one run each of 115 cases of the shipped suites, on two cores of an AMD
# EPYC: 114 were within a factor of 5 of their duration, 97 within 2. See benchmarks/estimates.py.
# Messages on 2026-11-28 to halo, links, kvstore, resnet_sp and gems there: 48 of 49 within 5.
FLOPS = 45e9
"""Operations of a core in a second, in convolutions and products of fp32."""
BYTES = 1.2e9
"""Bytes that a core copies, sends or compares in a second."""
MESSAGE_SECONDS = 3e-6
"""Seconds of a message; times the square of the ranks that share a core, which wait for it."""
CALL_SECONDS = 30e-6
"""Seconds of a core for a call of an operator of torch."""
START_SECONDS = 0.2
"""Seconds of a launcher until its ranks run."""
RANK_SECONDS = 0.35
"""Seconds of a core until a rank is ready."""
TORCH_SECONDS = 1.8
"""The same with torch."""


class EstimateSource(Enum):
    """The origin of an estimate."""

    HISTORY = "from earlier runs"
    WORK = "from the work"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CaseEstimate:
    """The estimated duration of a case, all its repeats together.

    Attributes:
        seconds: With its share of the start of its launches; None if it is unknown.
        source: Where it comes from.
        start: That share, in seconds.
        launches: The number of its launches.
    """

    seconds: float | None
    source: EstimateSource
    start: float = 0.0
    launches: int = 1

    @property
    def text(self) -> str:
        """The estimate for people: ``about 7.0 s``, or ``unknown duration``."""
        if self.seconds is None:
            return "unknown duration"
        return f"about {format_estimate(self.seconds)}"


@dataclass(frozen=True)
class RunEstimate:
    """The estimated duration of a run, and of each of its cases by id."""

    cases: Mapping[str, CaseEstimate] = field(default_factory=dict)

    @cached_property
    def seconds(self) -> float | None:
        """The duration of all cases with an estimate; None if no case has one."""
        known = [case.seconds for case in self.cases.values() if case.seconds is not None]
        return sum(known) if known else None

    @cached_property
    def counts(self) -> Mapping[EstimateSource, int]:
        """The number of cases by the source of their estimate."""
        return Counter(case.source for case in self.cases.values())

    def restricted_to(self, names: Iterable[str]) -> RunEstimate:
        """Return the estimate of a run of some of its cases."""
        return RunEstimate({name: self.cases[name] for name in names if name in self.cases})

    @property
    def text(self) -> str:
        """The estimate in one phrase, with its source."""
        unknown = self.counts[EstimateSource.UNKNOWN]
        cases = f"{format_quantity(unknown, 'case')} of unknown duration"
        if self.seconds is None:
            return cases if unknown else ""
        more = f", without {cases}" if unknown else ""
        return f"about {format_estimate(self.seconds)} ({self._source_text}){more}"

    @property
    def short_text(self) -> str:
        """The estimate for a title: ``about 7.0 s``, ``about 40 s + 2 cases``."""
        unknown = self.counts[EstimateSource.UNKNOWN]
        if self.seconds is None:
            return "unknown duration" if unknown else ""
        more = f" + {format_quantity(unknown, 'case')}" if unknown else ""
        return f"about {format_estimate(self.seconds)}{more}"

    @property
    def _source_text(self) -> str:
        computed = self.counts[EstimateSource.WORK]
        recorded = self.counts[EstimateSource.HISTORY]
        if not computed:
            return EstimateSource.HISTORY.value
        if not recorded:
            return f"estimated from the work, within a factor of {WITHIN}"
        cases = format_quantity(computed, "case")
        return f"{cases} estimated from the work, the others from earlier runs"


NO_ESTIMATE = RunEstimate()


def estimate_plan(plan: RunPlan, home: Path) -> RunEstimate:
    """Return the estimate of a run, from the recorded runs of a home and from the work.

    It reads the index of the home: call it in a thread where a user must not wait.
    """
    ranks = _ranks_of_cases(plan.jobs)
    works = {case.id: _work_hash(plan, case, ranks[case.id]) for case in _cases(plan.jobs)}
    history = _read_history(plan, home, works.values())
    total: dict[str, float] = defaultdict(float)
    starts: dict[str, float] = defaultdict(float)
    launches: Counter[str] = Counter()
    repeats = {case.id: _repeats(case, history.get(works[case.id])) for case in _cases(plan.jobs)}
    sources: dict[str, EstimateSource] = {}
    turns = plan.turns
    at_once = _jobs_at_once(turns)
    for turn in turns:
        start = _start_seconds(plan, turn, history.get(works[turn.cases[0].id]))
        share = start / len(turn.cases) / at_once[_turn_key(turn)]
        for case in turn.cases:
            seconds, source = _repeat_seconds(plan, turn, case, history.get(works[case.id]))
            sources[case.id] = source
            in_turn = 1 if turn.repeat is not None else case.repeat
            # Launches that a case needs beyond those of the plan are like these.
            scale = repeats[case.id] / case.repeat
            starts[case.id] += scale * share
            launches[case.id] += 1
            if seconds is not None:
                total[case.id] += scale * (share + in_turn * seconds / at_once[_turn_key(turn)])
    estimates = {}
    for case in _cases(plan.jobs):
        known = sources[case.id] is not EstimateSource.UNKNOWN
        seconds = total[case.id] if known else None
        if seconds is not None and case.until and works[case.id] not in history:
            seconds = max(seconds, case.until.max_time)
        estimates[case.id] = CaseEstimate(
            seconds, sources[case.id], starts[case.id], launches[case.id]
        )
    return RunEstimate(estimates)


def estimate_recorded(folder: RunFolder, environ: Mapping[str, str]) -> RunEstimate:
    """Return the estimate of a run that another process started; an empty one if it is damaged.

    It reads the suite of the run and the index of its home: call it in a thread.
    """
    home = folder.path.parent.parent
    try:
        plan = plan_recorded(Request(Path(), home, environ), folder)
        return estimate_plan(plan, home)
    except SpbenchError:
        return NO_ESTIMATE


def estimate_lines(estimate: RunEstimate) -> Iterator[str]:
    """Yield the duration of a run, then that of each of its cases, for people."""
    if not estimate.cases:
        return
    yield f"duration: {estimate.text}"
    for name, case in estimate.cases.items():
        yield f"  {name}: {case.text}"


def format_estimate(seconds: float) -> str:
    """Return a duration without digits that an estimate does not have."""
    if seconds < 1:
        return format_duration(max(0.1, float(f"{seconds:.1g}")))
    if seconds < 99.5:
        return format_duration(float(f"{seconds:.2g}")).replace(".0 s", " s")
    step = 10 if seconds < 600 else 60
    return format_duration(step * round(seconds / step)).removesuffix(" 00 s")


# The cases of a plan


def _cases(jobs: Iterable[Job]) -> list[Case]:
    """Return the cases of jobs, each once."""
    return list({case.id: case for case in chain.from_iterable(job.cases for job in jobs)}.values())


def _ranks_of_cases(jobs: Iterable[Job]) -> Counter[str]:
    """Return the ranks of each case; of one with a job on each host, those of all jobs."""
    ranks: Counter[str] = Counter()
    for job in jobs:
        for case in job.cases:
            ranks[case.id] += job.np
    return ranks


def _work_hash(plan: RunPlan, case: Case, np: int) -> str:
    argv = [argument for fault in plan.request.inject for argument in ("--inject", fault)]
    return work_of(case.benchmark, case.entry.version, np, case.params, argv, case.id)


def _turn_key(turn: Job) -> tuple[object, ...]:
    return turn.repeat, turn.host is not None, tuple(case.id for case in turn.cases)


def _jobs_at_once(turns: Iterable[Job]) -> dict[tuple[object, ...], int]:
    """Return how many jobs of the same cases run at once, each on a host of its own."""
    return {
        key: max(1, min(count, at_once)) if at_once else 1
        for (key, at_once), count in Counter(
            (_turn_key(turn), turn.at_once if turn.host is not None else 0) for turn in turns
        ).items()
    }


def _repeats(case: Case, past: Sequence[PastDuration] | None) -> int:
    """Return the repeats of a case, which are known only from its past if it has ``until``."""
    if case.until is None or not past:
        return case.repeat
    return max(case.repeat, round(median(row.launches for row in past)))


# History


_History = Mapping[str, Sequence["PastDuration"]]
"""The newest durations by work."""


def _read_history(plan: RunPlan, home: Path, works: Iterable[str]) -> _History:
    names = _host_names(plan)
    if names is None:
        return {}
    count = os.cpu_count() if names == {socket.gethostname()} else None
    rows: list[PastDuration] = []
    with suppress(ImportError, OSError):  # a Python may lack sqlite3, a home may be unreadable
        from spbench.record.runs.index import past_durations

        rows = past_durations(home, set(works), names, count)
    if not rows:
        return {}
    # Another MPI, torch or processor is another machine: the newest one is that of this run.
    rows = [row for row in rows if row.fingerprint == rows[0].fingerprint]
    history: dict[str, list[PastDuration]] = defaultdict(list)
    for row in rows:
        if len(history[row.work]) < NEWEST:
            history[row.work].append(row)
    return dict(history)


def _host_names(plan: RunPlan) -> set[str] | None:
    """Return the names that the hosts of a plan give themselves; None if they are not known."""
    names: set[str] = set()
    for job in plan.jobs:
        hosts = plan.hosts(job)
        if hosts is not None:
            names.update(socket.gethostname() if is_local(name) else name for name in hosts.names)
        elif runs_here(plan, job):
            names.add(socket.gethostname())
        else:
            return None
    return names


# Work


def _cores_of(plan: RunPlan, job: Job) -> int:
    """Return the cores that the ranks of a job share; other hosts have one for each rank."""
    return cores() if runs_here(plan, job) else job.np


def _start_seconds(plan: RunPlan, turn: Job, past: Sequence[PastDuration] | None) -> float:
    """Return the seconds from a launch until its first case begins."""
    starts = [row.start for row in past or () if row.start is not None]
    if starts:
        return median(starts)
    crowd = max(1.0, turn.np / _cores_of(plan, turn))
    torch = any(case.imports_torch for case in turn.cases)
    rank = TORCH_SECONDS if torch else RANK_SECONDS
    return START_SECONDS + crowd * rank * _slowdown(plan, turn)


def _slowdown(plan: RunPlan, job: Job) -> float:
    """Return the factor by which other work on this machine makes a job longer now.

    All processes that want to run get an equal share of the cores.
    """
    load = load_here() if runs_here(plan, job) else None
    if load is None:
        return 1.0
    others = min(load.minute, load.now)
    alone = max(1.0, job.np / load.cores)
    return max(1.0, (job.np + others) / load.cores) / alone


def _repeat_seconds(
    plan: RunPlan, job: Job, case: Case, past: Sequence[PastDuration] | None
) -> tuple[float | None, EstimateSource]:
    if past:
        return median(row.seconds for row in past), EstimateSource.HISTORY
    work = None if may_use_gpu(case) else case.estimate_work(job.np)
    if work is None:
        return None, EstimateSource.UNKNOWN
    seconds = work_seconds(work, job.np, _cores_of(plan, job)) - work.seconds
    return work.seconds + _slowdown(plan, job) * seconds, EstimateSource.WORK


def work_seconds(work: Work, np: int, cores: int) -> float:
    """Return the seconds of some work on so many ranks and cores."""
    crowd = max(1.0, np / cores)
    return (
        work.flops / (FLOPS * cores)
        + work.single_flops / FLOPS
        + work.bytes / (BYTES * cores)
        + work.messages * MESSAGE_SECONDS * crowd**2
        + work.calls * CALL_SECONDS / min(np, cores)
        + work.seconds
    )
