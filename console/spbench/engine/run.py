"""A run: its jobs one after another, what a fault leaves over in a new one, and its end."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from spbench.engine.faults.fault import Fault
from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.plan import RunPlan, check_before, launch_of, launches
from spbench.engine.preflight import look
from spbench.engine.recorder import Recorder, View
from spbench.engine.resume import FAILED, refuse_overtaken
from spbench.engine.run_metadata import resumed_json, run_json, run_start
from spbench.engine.stop import Stop
from spbench.engine.until import further
from spbench.engine.verdicts import tell_verdicts
from spbench.errors import ExitCode, SpbenchError, defect_of
from spbench.launch.detect import abandon_probes
from spbench.launch.jobs import Job, Launch, only
from spbench.launch.load import other_work_now
from spbench.launch.survey.progress import Say, nobody
from spbench.record.case_figures import is_open
from spbench.record.findings import found_or_defect
from spbench.record.judge import verdict_of
from spbench.record.machine.environment import facts, load
from spbench.record.runs.cancel import cancelled_where, forget_cancel
from spbench.record.runs.event_log import EventLog, unwritable
from spbench.record.runs.folder import RunFolder, create, working_folder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.history import note_ended
from spbench.record.state import RunState
from spbench.report.build import build_report, told_cases, untold
from spbench.suites.case import Case
from spbench.suites.shipped import file_of
from spbench_core.events.run_events import run_event

SHOWN = 3
"""Faults of one case on several hosts that are told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run: its folder, its exit code and its report."""

    folder: RunFolder
    exit_code: ExitCode
    report: dict[str, Any]


class Run:
    """One execution of a suite."""

    def __init__(self, plan: RunPlan, state: RunState, view: View, say: Say = nobody) -> None:
        self._plan = plan
        self._say = say
        self._left_out: tuple[str, ...] = ()
        self._view = view
        self._state = state
        self._errors: list[SpbenchError] = []
        self._missing = False
        self._number = 0
        self._running: list[JobRun] = []
        self._stop = Stop(plan.request.budget)

    async def execute(self) -> Outcome:
        """Run all jobs and write the run folder.

        Raises:
            SpbenchError: Nothing could be started: a host, a launcher, the folder. A run that has
                started never raises; its outcome tells.
        """
        working_folder()
        with self._stop:
            prepared = await self._stop.unless(self._look_before())
            request, suite = self._plan.request, self._plan.suite
            environment = facts(request.environ, file_of(suite.path), suite.text)
            environment |= {"other_work": other_work_now()}
            folder = self._plan.resumed or self._created(environment)
            self._stop.asked = partial(cancelled_where, folder)
            log = EventLog(folder.events)
            try:
                recorder = Recorder(log, self._state, self._view)
                if self._plan.resumed:
                    self._take_up(folder)
                self._begin(folder, recorder, environment)
                await self._run_jobs(prepared, folder, recorder)
                return self._finish(folder, recorder)
            finally:
                log.close()

    def _created(self, environment: dict[str, Any]) -> RunFolder:
        request, suite = self._plan.request, self._plan.suite
        folder = create(request.home, suite.name, shared=request.shared)
        folder.write_text("suite.yaml", suite.text)
        folder.write_json("run.json", run_json(self._plan, folder.id, environment))
        return folder

    def _take_up(self, folder: RunFolder) -> None:
        """Take in what a run had told before it was cut short; its report is no longer true."""
        for event in RecordedEvents(folder.events):
            self._state.apply(event)
        refuse_overtaken(folder, self._plan, self._state)
        forget_cancel(folder)
        folder.write_json("run.json", resumed_json(folder.read_json("run.json")))
        try:
            folder.report.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(folder.report, error) from None

    def _begin(self, folder: RunFolder, recorder: Recorder, environment: dict[str, Any]) -> None:
        if self._state.run is None:
            recorder.say("run_start", **run_start(self._plan, folder.id, environment))
            return
        cases = [case.id for job in self._plan.jobs for case in job.cases]
        argv = list(self._plan.request.argv)
        recorder.say("run_resumed", argv=argv, environment=environment, cases=cases)

    async def _look_before(self) -> list[Launch]:
        """Return the launch of each job; refuse what can be refused before one starts."""
        try:
            looked = await look(self._plan, self._say)
            self._plan, self._left_out = looked.plan, looked.left_out
            prepared = await asyncio.to_thread(launches, self._plan)
        except asyncio.CancelledError:
            abandon_probes()
            raise
        await check_before(self._plan, prepared, self._say, looked.told)
        return prepared

    async def _run_jobs(
        self, prepared: list[Launch], folder: RunFolder, recorder: Recorder
    ) -> None:
        launch_of_job = {
            job.number: launch for job, launch in zip(self._plan.jobs, prepared, strict=True)
        }
        turns = self._plan.turns
        while turns:
            await self._run_turns(turns, launch_of_job, folder, recorder)
            turns = self._further(recorder) or self._retries(recorder)

    async def _run_turns(
        self,
        turns: Iterable[Job],
        launch_of_job: Mapping[int, Launch],
        folder: RunFolder,
        recorder: Recorder,
    ) -> None:
        waiting: deque[tuple[Job, Launch | None]] = deque(
            (job, launch_of_job[job.number]) for job in turns
        )
        ends: list[BadEnd] = []
        while waiting and not self._over:
            together = self._next(waiting)
            ended = await asyncio.gather(
                *(self._run_job(job, launch, folder, recorder) for job, launch in together)
            )
            ends += (end for end in ended if end is not None)
            if self._goes_on(together, waiting):
                continue
            left, ends = self._settle_all(recorder, ends), []
            # new jobs, which are prepared when their turn comes
            waiting.extendleft((job, None) for job in reversed(left))
        self._settle_all(recorder, ends)

    def _goes_on(
        self,
        together: Sequence[tuple[Job, Launch | None]],
        waiting: Sequence[tuple[Job, Launch | None]],
    ) -> bool:
        """Whether the same cases still wait for hosts: a fault on one ends them on no other."""
        return bool(together and waiting) and _same_cases(waiting[0][0], together[0][0])

    def _next(self, waiting: deque[tuple[Job, Launch | None]]) -> list[tuple[Job, Launch | None]]:
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

    @property
    def _over(self) -> bool:
        return self._stop.code is not None or bool(self._errors)

    def _further(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return further launches of cases that repeat until something."""
        if self._over:
            return ()
        try:
            return further(self._plan.jobs, recorder)
        except SpbenchError as error:
            self._errors.append(error)
            return ()

    def _retries(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return the launches for another try of what did not pass, as often as was asked for."""
        again = () if self._over else self._to_retry()
        if not again:
            return ()
        try:
            recorder.say("retry", cases=[case.id for job in again for case in job.cases])
        except SpbenchError as error:
            self._errors.append(error)
            return ()
        self._missing = False
        return self._plan.turns_of(again)

    def _to_retry(self) -> tuple[Job, ...]:
        """Return the cases that did not pass and have tries left, in the jobs of the plan."""
        most = self._plan.request.retries
        failed = [
            case.id
            for case in self._state.cases.values()
            if case.status in FAILED and len(case.verdict.earlier) < most
        ]
        return only(self._plan.jobs, failed)

    async def _run_job(
        self, job: Job, launch: Launch | None, folder: RunFolder, recorder: Recorder
    ) -> BadEnd | None:
        """Run a job; return how it ended where a fault ended it."""
        job_run: JobRun | None = None
        try:
            launch = launch or launch_of(self._plan, job)
            request = self._plan.request
            hosts = self._plan.hosts(job)
            plan = JobPlan(job, hosts, launch, request.environ, request.chosen)
            job_run = JobRun(plan, folder, recorder, self._say)
            self._running.append(job_run)
            self._stop.tell(self._cancel)
            fault = await job_run.run()
        except SpbenchError as error:
            self._errors.append(error)
        except Exception as error:
            fault = Fault("error", defect_of(error), traceback=traceback.format_exc())
            current = job_run.current_case if job_run else job.cases[0].id
            return BadEnd(job, fault, current)
        else:
            return BadEnd(job, fault, job_run.current_case) if fault else None
        finally:
            self._running = [one for one in self._running if one is not job_run]
        self._give_up(recorder, job, Fault("error", str(self._errors[-1])))
        return None

    def _cancel(self, why: str, at_once: bool) -> None:
        for job_run in self._running:
            job_run.cancel(why, at_once=at_once)

    def _settle_all(self, recorder: Recorder, ends: list[BadEnd]) -> list[Job]:
        """Give each fault to the case that it hit; return the jobs of what can still be run."""
        faults: dict[str, list[Fault]] = {}
        for end in ends:
            faults.setdefault(end.case, []).append(end.fault)
        told = [replace(end, fault=_as_one(faults[end.case])) for end in ends]
        left = [self._settle(recorder, end) for end in told]
        return [job for job in left if job is not None]

    def _settle(self, recorder: Recorder, end: BadEnd) -> Job | None:
        """Give the fault to the case it hit; return the job of what can still be run."""
        job, fault = end.job, end.fault
        self._missing = self._missing or fault.missing
        own = range(job.first_rank, job.first_rank + job.np)
        started = any(self._state.ranks[r].case is not None for r in own if r in self._state.ranks)
        if not started and job.deaths:
            why = f"{fault.sentence}; it died twice before any case: it is not started a third time"
            fault = replace(fault, sentence=why)
        if fault.status == "cancelled" or (not started and (fault.missing or job.deaths)):
            self._give_up(recorder, job, fault)
            return None
        if self._state.cases[end.case].verdict.reason != fault.sentence:
            _judge(recorder, end.case, fault)
        left = tuple(case for case in job.cases if self._open(case) and not self._ran(case, job))
        return replace(job, cases=left, deaths=0 if started else 1) if left else None

    def _open(self, case: Case) -> bool:
        return is_open(self._state.cases[case.id])

    def _ran(self, case: Case, job: Job) -> bool:
        """Whether all ranks have ended the one repeat of a case that the job runs."""
        return job.repeat is not None and self._state.cases[case.id].ended(job.repeat)

    def _give_up(self, recorder: Recorder, job: Job, fault: Fault) -> None:
        for case in job.cases:
            if self._open(case):
                _judge(recorder, case.id, fault)

    def _finish(self, folder: RunFolder, recorder: Recorder) -> Outcome:
        why = self._stop.sentence or "the run ended before this case"
        for case in self._state.cases.values():
            if is_open(case):
                status = "cancelled" if self._stop.code else "skipped"
                cut = f"did not run: {why}" if case.verdict.started is None else why
                _judge(recorder, case.id, Fault("cancelled", cut), status)
        cases = told_cases(self._state)
        for case_id, reason in untold(self._state, cases):
            _judge(recorder, case_id, Fault("error", reason))
        end = self._run_end()
        try:
            recorder.say("run_end", **end)
            report = build_report(self._state, cases)
            folder.write_json("report.json", report)
            self._write_end(folder, end)
            note_ended(folder, report)
        except SpbenchError as error:
            self._errors.append(error)
            end = self._run_end()
            with suppress(SpbenchError):  # as much of it as can still be written
                recorder.say("run_end", **end)
                self._write_end(folder, end)
            self._state.apply(run_event("run_end", **end))
            report = build_report(self._state, cases)
        return Outcome(folder, ExitCode(end["exit_code"]), report)

    def _write_end(self, folder: RunFolder, end: dict[str, Any]) -> None:
        told = {name: end[name] for name in ("verdict", "exit_code")}
        told |= {"finished": time.time(), "counts": self._state.counts()}
        told |= {"load_after": end["load"], "fingerprint": self._state.machines.fingerprint()}
        folder.write_json("run.json", folder.read_json("run.json") | told)

    def _run_end(self) -> dict[str, Any]:
        verdict, code = self._verdict()
        flaky, fails = self._flaky(), self._plan.request.fail_on_flaky
        return {
            "verdict": verdict,
            "exit_code": int(code),
            "errors": [*self._left_out, *map(str, self._errors), *(flaky if fails else ())],
            "findings": [*found_or_defect(self._state), *(() if fails else flaky)],
            "load": load(),
        }

    def _flaky(self) -> list[str]:
        cases = self._state.cases.values()
        flaky = [case for case in cases if case.verdict.word == "flaky"]
        return [
            f"case {case.id} is flaky: it passed at try {case.verdict.attempts}, after: "
            f"{case.verdict.earlier[-1].reason or case.verdict.earlier[-1].status}"
            for case in flaky
        ]

    def _verdict(self) -> tuple[str, ExitCode]:
        """The first that applies of interrupted, budget, missing, error and failed."""
        if self._stop.code is not None:
            return "cancelled", self._stop.code
        verdict, code = verdict_of(self._state.cases.values())
        codes = {error.exit_code for error in self._errors}
        if self._missing or ExitCode.MISSING in codes:
            return "error", ExitCode.MISSING
        if codes:
            return "error", ExitCode.ERROR
        less = self._left_out or (self._plan.request.fail_on_flaky and self._flaky())
        if less and code == ExitCode.PASSED:
            return "failed", ExitCode.FAILED  # less ran, or passed, than was asked for
        return verdict, code


@dataclass(frozen=True, slots=True)
class BadEnd:
    """The end of a job by a fault, and the case that was not through then."""

    job: Job
    fault: Fault
    current: str | None

    @property
    def case(self) -> str:
        """The case that it counts for: after the last one has ended that one, for a missing bye."""
        return self.fault.case or self.current or self.job.cases[-1].id


def _as_one(faults: Sequence[Fault]) -> Fault:
    """Return faults of one case, on several hosts, as one."""
    sentences = list(dict.fromkeys(fault.sentence for fault in faults))
    more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return replace(faults[0], sentence="; ".join(sentences[:SHOWN]) + more)


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
    return free and _same_cases(job, others[0]) and len(others) < job.at_once


def _judge(recorder: Recorder, case_id: str, fault: Fault, status: str | None = None) -> None:
    fields: dict[str, Any] = {
        "case": case_id,
        "status": status or fault.status,
        "reason": fault.sentence,
        "traceback": fault.traceback,
        "expectations": [],
    }
    try:
        recorder.say("case_judged", **fields)
    except SpbenchError:
        # The log is full; the recorder goes on without it.
        recorder.say("case_judged", **fields)
    with suppress(SpbenchError):
        tell_verdicts(recorder)
