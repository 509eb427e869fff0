"""The launches of a run, turn by turn, and what a fault in one of them leaves over."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spbench.engine.faults.fault import Fault
from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.plan import RunPlan, prepare_job
from spbench.engine.recorder import Recorder
from spbench.engine.stop import Stop
from spbench.engine.verdicts import judge_case
from spbench.errors import SpbenchError, describe_defect
from spbench.launch.jobs import Job, Launch
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.record.case_figures import is_open
from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.suites.case import Case
from spbench_core.events.statuses import CaseStatus

SHOWN = 3
"""Faults of one case on several hosts that are told."""
Waiting = deque[tuple[Job, Launch | None]]
"""The jobs to come; one without a launch is prepared when its turn comes."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where jobs run and are recorded."""

    plan: RunPlan
    folder: RunFolder
    recorder: Recorder


class JobSequence:
    """Runs jobs one after another, those of one case on hosts of their own at once.

    Attributes:
        errors: What ended the run: a launcher that could not be started, a folder not written.
        missing: Whether a fault was that something is missing.
    """

    def __init__(self, state: RunState, stop: Stop, say: Progress = ignore_progress) -> None:
        self._state = state
        self._stop = stop
        self._say = say
        self._number = 0
        self._running: list[JobRun] = []
        self.errors: list[SpbenchError] = []
        self.missing = False

    @property
    def stopped(self) -> bool:
        """Whether no further job is to start."""
        return self._stop.code is not None or bool(self.errors)

    async def run(
        self,
        plan: RunPlan,
        turns: Iterable[Job],
        launch_of_job: Mapping[int, Launch],
        folder: RunFolder,
        recorder: Recorder,
    ) -> None:
        """Run jobs in their order, and what faults leave over."""
        place = _Place(plan, folder, recorder)
        waiting: Waiting = deque((job, launch_of_job[job.number]) for job in turns)
        ends: list[JobFailure] = []
        while waiting and not self.stopped:
            together = self._next(waiting)
            ended = await asyncio.gather(
                *(self._run_job(job, launch, place) for job, launch in together)
            )
            ends += (end for end in ended if end is not None)
            if waiting and together and _same_cases(waiting[0][0], together[0][0]):
                continue  # on other hosts: a fault on one ends them on no other
            left, ends = self.settle(recorder, ends), []
            # new jobs, which are prepared when their turn comes
            waiting.extendleft((job, None) for job in reversed(left))
        self.settle(recorder, ends)

    def _next(self, waiting: Waiting) -> list[tuple[Job, Launch | None]]:
        """Take the next job that has something to run, and those that run at once with it.

        These have the same cases, each on a host of its own.
        """
        together: list[tuple[Job, Launch | None]] = []
        while waiting and _runs_beside(waiting[0][0], [job for job, _ in together]):
            job, launch = waiting.popleft()
            cases = tuple(case for case in job.cases if self._open(case))
            if not cases:  # a fault in an earlier repeat has ended them
                continue
            # on from those of before, in a run that was resumed
            self._number = 1 + max(self._number, *self._state.jobs, 0)
            together.append((replace(job, number=self._number, cases=cases), launch))
        return together

    async def _run_job(self, job: Job, launch: Launch | None, place: _Place) -> JobFailure | None:
        """Run a job; return how it ended where a fault ended it."""
        job_run: JobRun | None = None
        try:
            launch = launch or prepare_job(place.plan, job)
            request = place.plan.request
            hosts = place.plan.find_hosts(job)
            plan = JobPlan(job, hosts, launch, request.environ, request.launch_choice)
            job_run = JobRun(plan, place.folder, place.recorder, self._say)
            self._running.append(job_run)
            self._stop.set_listener(self._cancel)
            fault = await job_run.run()
        except SpbenchError as error:
            self.errors.append(error)
        except Exception as error:
            fault = Fault(
                CaseStatus.ERROR, describe_defect(error), traceback=traceback.format_exc()
            )
            current = job_run.current_case if job_run else job.cases[0].id
            return self.make_failure(job, fault, current)
        else:
            return self.make_failure(job, fault, job_run.current_case) if fault else None
        finally:
            self._running = [one for one in self._running if one is not job_run]
        self._give_up(place.recorder, job, Fault(CaseStatus.ERROR, str(self.errors[-1])))
        return None

    def _cancel(self, why: str, at_once: bool) -> None:
        for job_run in self._running:
            job_run.cancel(why, at_once=at_once)

    def make_failure(self, job: Job, fault: Fault, current: str | None) -> JobFailure:
        """Return a job's end by a fault, while the state knows its ranks."""
        ranks = self._state.ranks
        own = range(job.first_rank, job.first_rank + job.np)
        started = any(ranks[rank].case is not None for rank in own if rank in ranks)
        return JobFailure(job, fault, current, started)

    def settle(self, recorder: Recorder, ends: list[JobFailure]) -> list[Job]:
        """Give each fault to the case that it hit; return the jobs of what can still be run."""
        faults: dict[str, list[Fault]] = {}
        for end in ends:
            faults.setdefault(end.case, []).append(end.fault)
        told = [replace(end, fault=_as_one(faults[end.case])) for end in ends]
        left = [self._settle(recorder, end) for end in told]
        return [job for job in left if job is not None]

    def _settle(self, recorder: Recorder, end: JobFailure) -> Job | None:
        """Give the fault to the case it hit; return the job of what can still be run."""
        job = end.job
        fault = end.fault
        started = end.started
        self.missing = self.missing or fault.missing
        if not started and job.deaths:
            why = f"{fault.message}; it died twice before any case: it is not started a third time"
            fault = replace(fault, message=why)
        if fault.status == CaseStatus.CANCELLED or (not started and (fault.missing or job.deaths)):
            self._give_up(recorder, job, fault)
            return None
        if self._state.cases[end.case].verdict.reason != fault.message:
            judge_case(recorder, end.case, fault, job=_told(job))
        left = tuple(case for case in job.cases if self._open(case) and not self._ran(case, job))
        return replace(job, cases=left, deaths=0 if started else 1) if left else None

    def _open(self, case: Case) -> bool:
        return is_open(self._state.cases[case.id])

    def _ran(self, case: Case, job: Job) -> bool:
        """Whether all ranks have ended the one repeat of a case that the job runs."""
        return job.repeat is not None and self._state.cases[case.id].has_ended(job.repeat)

    def _give_up(self, recorder: Recorder, job: Job, fault: Fault) -> None:
        for case in job.cases:
            if self._open(case):
                judge_case(recorder, case.id, fault, job=_told(job))


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The end of a job by a fault.

    Attributes:
        current: The case that was not through then.
        started: Whether a rank had started a case.
    """

    job: Job
    fault: Fault
    current: str | None
    started: bool

    @property
    def case(self) -> str:
        """The case that it counts for: after the last one has ended that one, for a missing bye."""
        return self.fault.case or self.current or self.job.cases[-1].id


def _as_one(faults: Sequence[Fault]) -> Fault:
    """Return faults of one case, on several hosts, as one."""
    sentences = list(dict.fromkeys(fault.message for fault in faults))
    more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return replace(faults[0], message="; ".join(sentences[:SHOWN]) + more)


def _same_cases(job: Job, other: Job) -> bool:
    """Whether two jobs are of the same launch of the same cases, on hosts of their own."""
    of_hosts = job.host is not None and other.host is not None
    alike = (job.repeat, job.deaths) == (other.repeat, other.deaths)
    names = {case.id for case in other.cases}
    return of_hosts and alike and not names.isdisjoint(case.id for case in job.cases)


def _runs_beside(job: Job, others: Sequence[Job]) -> bool:
    """Whether a job runs at once with others: each on a host of its own, with the same cases."""
    if not others:
        return True
    free = job.host not in {other.host for other in others}
    return free and _same_cases(job, others[0]) and len(others) < job.hosts_at_once


def _told(job: Job) -> int | None:
    """Return the number of a job on a host of its own: of its case's many, that of the fault."""
    return None if job.host is None else job.number
