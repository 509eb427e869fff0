"""One run: its folder, its jobs, further repeats and retries, and its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from spbench.engine.capacity import reject_over_capacity
from spbench.engine.faults.fault import Fault
from spbench.engine.job_sequence import JobSequence, plan_further_jobs
from spbench.engine.judging import record_fault
from spbench.engine.plan import RunPlan, check_before_start, prepare_launches
from spbench.engine.preflight import run_preflight
from spbench.engine.recorder import Recorder, View
from spbench.engine.resume import reject_overtaken
from spbench.engine.run_metadata import build_resumed_json, build_run_json, build_run_start
from spbench.engine.stop import Stop, read_cancel_origin, remove_cancel_request
from spbench.errors import ExitCode, SpbenchError
from spbench.launch.detect import abandon_probes
from spbench.launch.jobs import Job, Launch, select_cases
from spbench.launch.load import describe_other_work
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.record.case_figures import is_open
from spbench.record.findings import collect_findings_or_defect
from spbench.record.hidden_values import hide_arguments, hide_suite
from spbench.record.judge import judge_run
from spbench.record.machine.environment import collect_facts, read_load_average
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.files import unwritable_error
from spbench.record.runs.folder import RunFolder, create_run, find_working_folder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.history import index_ended_run
from spbench.record.state import RunState
from spbench.report.build import build_cases, build_document
from spbench.report.document import ReportDocument
from spbench.suites.shipped import resolve_shipped_path
from spbench_core.events import fields as event_fields
from spbench_core.events import run_events
from spbench_core.events.run_events import make_run_event
from spbench_core.events.statuses import CaseStatus, RunStatus


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run: its folder, its exit code and its report."""

    folder: RunFolder
    exit_code: ExitCode
    report: ReportDocument


_STATUSES_OF_STOPPED_CASES = frozenset({CaseStatus.CANCELLED, CaseStatus.SKIPPED})


class Run:
    """One execution of a suite."""

    def __init__(
        self, plan: RunPlan, state: RunState, view: View, progress: Progress = ignore_progress
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._excluded: tuple[str, ...] = ()
        self._view = view
        self._state = state
        self._stop = Stop(plan.request.budget)
        self._sequence = JobSequence(state, self._stop, progress)
        self._errors = self._sequence.errors

    async def execute(self) -> EndedRun:
        """Run all jobs and write the run folder.

        Raises:
            SpbenchError: Nothing could be started: a host, a launcher or the folder failed. After
                the start, errors are part of the result.
        """
        find_working_folder()  # raises if it was deleted, before anything is started
        with self._stop:
            launches = await self._stop.run_until_stop(self._prepare())
            request = self._plan.request
            suite = self._plan.suite
            environment = collect_facts(
                request.environ, resolve_shipped_path(suite.path), suite.text
            )
            environment |= {"other_work": describe_other_work()}
            folder = self._plan.resumed or self._create_folder(environment)
            self._stop.find_canceller = partial(read_cancel_origin, folder)
            log = EventLog(folder.events)
            try:
                recorder = Recorder(log, self._state, self._view)
                if self._plan.resumed:
                    self._restore(folder, recorder)
                self._record_start(folder, recorder, environment)
                await self._run_jobs(launches, folder, recorder)
                return self._finish(folder, recorder)
            finally:
                log.close()

    def _create_folder(self, environment: dict[str, Any]) -> RunFolder:
        request = self._plan.request
        suite = self._plan.suite
        folder = create_run(request.home, suite.name, shared=request.shared)
        folder.write_text("suite.yaml", hide_suite(suite.text))
        folder.write_json("run.json", build_run_json(self._plan, folder.id, environment))
        return folder

    def _restore(self, folder: RunFolder, recorder: Recorder) -> None:
        """Restore the state of a run that was cut short, and remove its outdated report."""
        for event in RecordedEvents(folder.events):
            self._state.apply(event)
            if event["event"] in run_events.FIELDS:
                recorder.continue_after(event["time"])
        reject_overtaken(folder, self._plan, self._state)
        remove_cancel_request(folder)
        folder.write_json("run.json", build_resumed_json(folder.read_json("run.json")))
        try:
            folder.report.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable_error(folder.report, error) from None

    def _record_start(
        self, folder: RunFolder, recorder: Recorder, environment: dict[str, Any]
    ) -> None:
        if self._state.run is None:
            recorder.record("run_start", **build_run_start(self._plan, folder.id, environment))
            return
        cases = [case.id for job in self._plan.jobs for case in job.cases]
        argv = hide_arguments(self._plan.request.argv)
        recorder.record("run_resumed", argv=argv, environment=environment, cases=cases)

    async def _prepare(self) -> list[Launch]:
        """Return the launch of each job, after all checks before the start."""
        try:
            preflight = await run_preflight(self._plan, self._progress)
            self._plan = preflight.plan
            self._excluded = preflight.excluded
            await asyncio.to_thread(reject_over_capacity, self._plan)
            launches = await asyncio.to_thread(prepare_launches, self._plan)
        except asyncio.CancelledError:
            # a thread is not cancelled with its task: end the process for which it waits
            abandon_probes()
            raise
        await check_before_start(self._plan, launches, self._progress, preflight.host_facts)
        return launches

    async def _run_jobs(
        self, launches: list[Launch], folder: RunFolder, recorder: Recorder
    ) -> None:
        launch_by_job = {
            job.number: launch for job, launch in zip(self._plan.jobs, launches, strict=True)
        }
        jobs = self._plan.launch_order
        while jobs:
            await self._sequence.run(self._plan, jobs, launch_by_job, folder, recorder)
            jobs = self._plan_further(recorder) or self._plan_retries(recorder)

    def _plan_further(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return further launches of cases that repeat until a condition holds."""
        if self._sequence.stopped:
            return ()
        try:
            return plan_further_jobs(self._plan.jobs, recorder)
        except SpbenchError as error:
            self._errors.append(error)
            return ()

    def _plan_retries(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return the launches of the next attempt of cases that did not pass."""
        jobs = () if self._sequence.stopped else self._select_retries()
        if not jobs:
            return ()
        try:
            recorder.record("retry", cases=[case.id for job in jobs for case in job.cases])
        except SpbenchError as error:
            self._errors.append(error)
            return ()
        # Only the last attempt counts, so that a module that was missing before does not.
        self._sequence.missing = False
        return self._plan.order_jobs(jobs)

    def _select_retries(self) -> tuple[Job, ...]:
        """Return the jobs with the cases that did not pass and have attempts left."""
        max_retries = self._plan.request.retries
        failed = [
            case.id
            for case in self._state.cases.values()
            if case.status.is_bad and len(case.execution.previous_attempts) < max_retries
        ]
        return select_cases(self._plan.jobs, failed)

    def _finish(self, folder: RunFolder, recorder: Recorder) -> EndedRun:
        reason = self._stop.message or "the run ended before this case"
        for case in self._state.cases.values():
            if is_open(case):
                status = CaseStatus.CANCELLED if self._stop.code else CaseStatus.SKIPPED
                message = f"did not run: {reason}" if case.execution.started is None else reason
                record_fault(recorder, case.id, Fault(CaseStatus.CANCELLED, message), status)
        cases, unreportable = build_cases(self._state)
        for case_id, reason in unreportable:
            record_fault(recorder, case_id, Fault(CaseStatus.ERROR, reason))
        end_fields = self._build_run_end()
        try:
            recorder.record("run_end", **end_fields)
            report = build_document(self._state, cases)
            folder.write_chunks("report.json", report.chunks())
            self._write_end(folder, end_fields)
            index_ended_run(folder, report.head, report.cases)
        except SpbenchError as error:
            self._errors.append(error)
            end_fields = self._build_run_end()
            # On a full disk, a file may still fit although the report does not.
            with suppress(SpbenchError):
                recorder.record("run_end", **end_fields)
                self._write_end(folder, end_fields)
            self._state.apply(make_run_event("run_end", **end_fields))
            report = build_document(self._state, cases)
        return EndedRun(folder, ExitCode(end_fields["exit_code"]), report)

    def _write_end(self, folder: RunFolder, end: dict[str, Any]) -> None:
        fields = {name: end[name] for name in ("verdict", "exit_code")}
        fields |= {"finished": event_fields.now(), "counts": self._state.counts()}
        fields |= {"fault_outcome": self._state.fault_outcome}
        fields |= {"load_after": end["load"], "fingerprint": self._state.machines.fingerprint()}
        folder.write_json("run.json", folder.read_json("run.json") | fields)

    def _build_run_end(self) -> dict[str, Any]:
        status, code = self._judge()
        flaky = self._describe_flaky()
        flaky_fails = self._plan.request.fail_on_flaky
        return {
            "verdict": status,
            "exit_code": int(code),
            "errors": [*self._excluded, *map(str, self._errors), *(flaky if flaky_fails else ())],
            "findings": [*collect_findings_or_defect(self._state), *(() if flaky_fails else flaky)],
            "load": read_load_average(),
        }

    def _describe_flaky(self) -> list[str]:
        cases = self._state.cases.values()
        flaky = [case for case in cases if case.execution.shown_status == CaseStatus.FLAKY]
        findings = []
        for case in flaky:
            last_attempt = case.execution.previous_attempts[-1]
            findings.append(
                f"case {case.id} is flaky: it passed at try {case.execution.attempts}, after: "
                f"{last_attempt.reason or last_attempt.status}"
            )
        return findings

    def _judge(self) -> tuple[RunStatus, ExitCode]:
        """Return the first status that applies, with its exit code.

        The order is interrupted, budget, missing, error, failed. A request to end the run that
        comes after the end of its last case has no effect.
        """
        statuses = {case.status for case in self._state.cases.values()}
        if self._stop.code is not None and statuses & _STATUSES_OF_STOPPED_CASES:
            return RunStatus.CANCELLED, self._stop.code
        status, code = judge_run(self._state.cases.values())
        codes = {error.exit_code for error in self._errors}
        if self._sequence.missing or ExitCode.MISSING in codes:
            return RunStatus.ERROR, ExitCode.MISSING
        if codes:
            return RunStatus.ERROR, ExitCode.ERROR
        incomplete = self._excluded or (self._plan.request.fail_on_flaky and self._describe_flaky())
        # less ran, or passed, than was requested
        if incomplete and code == ExitCode.PASSED:
            return RunStatus.FAILED, ExitCode.FAILED
        return status, code
