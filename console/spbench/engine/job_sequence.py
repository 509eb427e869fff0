"""The sequence of a run's jobs, also after a fault and with further repeats."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spbench.engine.faults.fault import Fault
from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.judging import judge_ready_cases, record_fault
from spbench.engine.plan import RunPlan, prepare_job
from spbench.engine.recorder import Recorder
from spbench.engine.stop import Stop
from spbench.errors import SpbenchError, describe_defect
from spbench.launch.jobs import Job, Launch
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.record.case_figures import is_open
from spbench.record.case_state import CaseState
from spbench.record.judge import describe_failed_checks
from spbench.record.planted_faults import add_found_fault
from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench.suites.case import MAX_REPEATS, Case
from spbench_core.events.statuses import CaseStatus

MAX_SHOWN_FAULTS = 3
"""The number of faults of one case on several hosts that are shown."""
PendingJobs = deque[tuple[Job, Launch | None]]
"""Jobs to run. A job without a launch is prepared when it starts."""


@dataclass(frozen=True, slots=True)
class _RunContext:
    """The plan of a run, with its folder and recorder."""

    plan: RunPlan
    folder: RunFolder
    recorder: Recorder


class JobSequence:
    """Runs jobs one after another. Jobs of one case on separate hosts run at once.

    Attributes:
        errors: Errors that end the run, such as a launcher that cannot be started.
        missing: Whether something was missing, such as a module of the ranks.
    """

    def __init__(self, state: RunState, stop: Stop, progress: Progress = ignore_progress) -> None:
        self._state = state
        self._stop = stop
        self._progress = progress
        self._number = 0
        self._running: list[JobRun] = []
        self.errors: list[SpbenchError] = []
        self.missing = False

    @property
    def stopped(self) -> bool:
        """Whether no further job may start."""
        return self._stop.code is not None or bool(self.errors)

    async def run(
        self,
        plan: RunPlan,
        jobs: Iterable[Job],
        launch_by_job: Mapping[int, Launch],
        folder: RunFolder,
        recorder: Recorder,
    ) -> None:
        """Run jobs in order, and after a fault the jobs of the remaining cases."""
        context = _RunContext(plan, folder, recorder)
        pending: PendingJobs = deque((job, launch_by_job[job.number]) for job in jobs)
        failures: list[JobFailure] = []
        while pending and not self.stopped:
            concurrent = self._take_next(pending)
            ended = await asyncio.gather(
                *(self._run_job(job, launch, context) for job, launch in concurrent)
            )
            failures += (failure for failure in ended if failure is not None)
            if pending and concurrent and _share_cases(pending[0][0], concurrent[0][0]):
                # the same cases are next on other hosts, where this fault does not end them
                continue
            remaining = self.record_failures(recorder, failures)
            failures = []
            # new jobs, which are prepared when they start
            pending.extendleft((job, None) for job in reversed(remaining))
        self.record_failures(recorder, failures)

    def _take_next(self, pending: PendingJobs) -> list[tuple[Job, Launch | None]]:
        """Take the next job with open cases, and the jobs that run at once with it.

        These have the same cases, each on its own host.
        """
        concurrent: list[tuple[Job, Launch | None]] = []
        while pending and _can_run_with(pending[0][0], [job for job, _ in concurrent]):
            job, launch = pending.popleft()
            cases = tuple(case for case in job.cases if self._is_open(case))
            if not cases:  # a fault in an earlier repeat has ended them
                continue
            # a resumed run continues the numbers of its earlier jobs
            self._number = 1 + max(self._number, *self._state.jobs, 0)
            concurrent.append((replace(job, number=self._number, cases=cases), launch))
        return concurrent

    async def _run_job(
        self, job: Job, launch: Launch | None, context: _RunContext
    ) -> JobFailure | None:
        """Run a job, and return its failure if a fault ended it."""
        job_run: JobRun | None = None
        try:
            launch = launch or prepare_job(context.plan, job)
            request = context.plan.request
            hosts = context.plan.find_hosts(job)
            plan = JobPlan(job, hosts, launch, request.environ, request.launch_choice)
            job_run = JobRun(plan, context.folder, context.recorder, self._progress)
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
            self._running = [other for other in self._running if other is not job_run]
        self._judge_open_cases(context.recorder, job, Fault(CaseStatus.ERROR, str(self.errors[-1])))
        return None

    def _cancel(self, reason: str, kill_now: bool) -> None:
        for job_run in self._running:
            job_run.cancel(reason, kill_now=kill_now)

    def make_failure(self, job: Job, fault: Fault, current_case: str | None) -> JobFailure:
        """Return a job's failure; call it while the state still has the job's ranks."""
        ranks = self._state.ranks
        job_ranks = range(job.first_rank, job.first_rank + job.np)
        has_started = any(ranks[rank].case is not None for rank in job_ranks if rank in ranks)
        return JobFailure(job, fault, current_case, has_started)

    def record_failures(self, recorder: Recorder, failures: list[JobFailure]) -> list[Job]:
        """Record faults as statuses of their cases; return jobs of remaining cases."""
        failures_by_case: dict[str, list[JobFailure]] = {}
        for failure in failures:
            failures_by_case.setdefault(failure.case, []).append(failure)
        merged = [
            replace(failure, fault=self._merge_faults(failures_by_case[failure.case]))
            for failure in failures
        ]
        remaining = [self._record_failure(recorder, failure) for failure in merged]
        return [job for job in remaining if job is not None]

    def _merge_faults(self, failures: Sequence[JobFailure]) -> Fault:
        """Return faults of one case on several hosts as one fault."""
        messages = list(dict.fromkeys(failure.fault.message for failure in failures))
        hidden = len(messages) - MAX_SHOWN_FAULTS
        more = f"; and {hidden} more" if hidden > 0 else ""
        message = "; ".join(messages[:MAX_SHOWN_FAULTS]) + more
        inject = self._state.cases[failures[0].case].identity.inject
        if all(failure.shows(inject) for failure in failures):
            message = add_found_fault(message, inject)
        return replace(failures[0].fault, message=message)

    def _record_failure(self, recorder: Recorder, failure: JobFailure) -> Job | None:
        """Record a fault as the status of its case; return the remaining job."""
        job = failure.job
        fault = failure.fault
        has_started = failure.has_started
        self.missing = self.missing or fault.missing
        if not has_started and job.deaths:
            fault = replace(
                fault,
                message=f"{fault.message}; it died twice before any case: it is not started a "
                "third time",
            )
        if fault.status == CaseStatus.CANCELLED or (
            not has_started and (fault.missing or job.deaths)
        ):
            self._judge_open_cases(recorder, job, fault)
            return None
        if self._state.cases[failure.case].execution.reason != fault.message:
            record_fault(recorder, failure.case, fault, job=_get_number(job))
        cases = tuple(
            case for case in job.cases if self._is_open(case) and not self._has_run(case, job)
        )
        return replace(job, cases=cases, deaths=0 if has_started else 1) if cases else None

    def _is_open(self, case: Case) -> bool:
        return is_open(self._state.cases[case.id])

    def _has_run(self, case: Case, job: Job) -> bool:
        """Whether all ranks have ended the single repeat of a case that the job runs."""
        return job.repeat is not None and self._state.cases[case.id].has_ended(job.repeat)

    def _judge_open_cases(self, recorder: Recorder, job: Job, fault: Fault) -> None:
        for case in job.cases:
            if self._is_open(case):
                record_fault(recorder, case.id, fault, job=_get_number(job))


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The end of a job by a fault.

    Attributes:
        current_case: The case that had not ended then.
        has_started: Whether a rank had started a case.
    """

    job: Job
    fault: Fault
    current_case: str | None
    has_started: bool

    @property
    def case(self) -> str:
        """The case that it counts for; after the last case, that one."""
        return self.fault.case or self.current_case or self.job.cases[-1].id

    def shows(self, inject: str | None) -> bool:
        """Whether the fault is the effect of the planted fault of its case."""
        return self.has_started and self.fault.shows(inject, self.job.np)


def _share_cases(job: Job, other: Job) -> bool:
    """Whether two jobs on separate hosts belong to the same launch of the same cases."""
    have_hosts = job.host is not None and other.host is not None
    same_launch = (job.repeat, job.deaths) == (other.repeat, other.deaths)
    other_ids = {case.id for case in other.cases}
    return have_hosts and same_launch and not other_ids.isdisjoint(case.id for case in job.cases)


def _can_run_with(job: Job, others: Sequence[Job]) -> bool:
    """Whether a job runs at once with others: on a separate host, with the same cases."""
    if not others:
        return True
    is_free = job.host not in {other.host for other in others}
    return is_free and _share_cases(job, others[0]) and len(others) < job.max_concurrent_hosts


def _get_number(job: Job) -> int | None:
    """Return the number of a job on its own host; None for the only job of its cases."""
    return None if job.host is None else job.number


def plan_further_jobs(jobs: Iterable[Job], recorder: Recorder) -> tuple[Job, ...]:
    """Return one more launch of each case that must repeat; end other repeats.

    A case with ``until`` repeats until its median is precise enough, or its time is used up.

    Raises:
        FailedRunError: The end of repeats cannot be recorded.
    """
    state = recorder.state
    for case in [*_list_repeating(state)]:
        width = case.compute_interval_width()
        reason = _find_end_of_repeats(case, state, width)
        if reason is not None:
            recorder.record(
                "repeats_end", case=case.id, repeats=case.repeats, why=reason, width=width
            )
            judge_ready_cases(recorder, case.id)
    next_repeat_by_case = {case.id: case.repeats for case in _list_repeating(state)}
    return tuple(_make_jobs(jobs, next_repeat_by_case))


def _list_repeating(state: RunState) -> Iterator[CaseState]:
    """Yield the cases with ``until`` that have ended all repeats so far."""
    for case in state.cases.values():
        if (
            case.identity.until
            and case.status == CaseStatus.RUNNING
            and case.all_ended
            and not case.complete
        ):
            yield case


def _find_end_of_repeats(case: CaseState, state: RunState, width: float | None) -> str | None:
    """Return why a case needs no further repeat; None if it needs one."""
    until = case.identity.until or {}
    if describe_failed_checks(case):
        return "check"
    if width is not None and width <= until["interval"]:
        return "interval"
    if _sum_seconds(case, state) >= until["max_time"]:
        return "max_time"
    return "repeats" if case.repeats >= MAX_REPEATS else None


def _sum_seconds(case: CaseState, state: RunState) -> float:
    """Return the seconds of a case's launches, each shared equally by its cases."""
    jobs = [state.jobs[number] for number in set(case.measured.jobs.values())]
    return sum(
        (job.finished - job.started) / len(job.cases) for job in jobs if job.finished is not None
    )


def _make_jobs(jobs: Iterable[Job], next_repeat_by_case: dict[str, int]) -> Iterator[Job]:
    for job in jobs:
        repeats = {
            next_repeat_by_case[case.id] for case in job.cases if case.id in next_repeat_by_case
        }
        for repeat in sorted(repeats):
            cases = tuple(case for case in job.cases if next_repeat_by_case.get(case.id) == repeat)
            yield replace(job, cases=cases, repeat=repeat)
