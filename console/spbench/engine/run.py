"""A run: its folder, its turns, what is run further or again, and its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from spbench.engine.capacity import reject_over_capacity
from spbench.engine.faults.fault import Fault
from spbench.engine.plan import RunPlan, check_before_start, prepare_launches
from spbench.engine.preflight import run_preflight
from spbench.engine.recorder import Recorder, View
from spbench.engine.resume import reject_overtaken
from spbench.engine.run_metadata import build_resumed_json, build_run_json, build_run_start
from spbench.engine.stop import Stop
from spbench.engine.turns import JobSequence
from spbench.engine.until import plan_further_jobs
from spbench.engine.verdicts import judge_case
from spbench.errors import ExitCode, SpbenchError
from spbench.launch.detect import abandon_probes
from spbench.launch.jobs import Job, Launch, select_cases
from spbench.launch.load import describe_other_work
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.record.case_figures import is_open
from spbench.record.findings import collect_findings_or_defect
from spbench.record.hidden_values import hide_arguments, hide_suite
from spbench.record.judge import judge_run
from spbench.record.machine.environment import collect_facts, read_load
from spbench.record.runs.cancel import forget_cancel, read_cancel_origin
from spbench.record.runs.event_log import EventLog, unwritable_error
from spbench.record.runs.folder import RunFolder, create_run, working_folder
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.history import index_ended_run
from spbench.record.state import RunState
from spbench.report.build import build_cases, build_document
from spbench.report.document import ReportDocument
from spbench.suites.shipped import locate_suite_file
from spbench_core.events import clock, run_events
from spbench_core.events.run_events import make_run_event
from spbench_core.events.statuses import CaseStatus, RunStatus


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run: its folder, its exit code and its report."""

    folder: RunFolder
    exit_code: ExitCode
    report: ReportDocument


class Run:
    """One execution of a suite."""

    def __init__(
        self, plan: RunPlan, state: RunState, view: View, say: Progress = ignore_progress
    ) -> None:
        self._plan = plan
        self._say = say
        self._left_out: tuple[str, ...] = ()
        self._view = view
        self._state = state
        self._stop = Stop(plan.request.budget)
        self._turns = JobSequence(state, self._stop, say)
        self._errors = self._turns.errors

    async def execute(self) -> EndedRun:
        """Run all jobs and write the run folder.

        Raises:
            SpbenchError: Nothing could be started: a host, a launcher, the folder. A run that has
                started never raises; its outcome tells.
        """
        working_folder()
        with self._stop:
            prepared = await self._stop.run_until_stop(self._look_before())
            request = self._plan.request
            suite = self._plan.suite
            environment = collect_facts(request.environ, locate_suite_file(suite.path), suite.text)
            environment |= {"other_work": describe_other_work()}
            folder = self._plan.resumed or self._created(environment)
            self._stop.find_canceller = partial(read_cancel_origin, folder)
            log = EventLog(folder.events)
            try:
                recorder = Recorder(log, self._state, self._view)
                if self._plan.resumed:
                    self._take_up(folder, recorder)
                self._begin(folder, recorder, environment)
                await self._run_jobs(prepared, folder, recorder)
                return self._finish(folder, recorder)
            finally:
                log.close()

    def _created(self, environment: dict[str, Any]) -> RunFolder:
        request = self._plan.request
        suite = self._plan.suite
        folder = create_run(request.home, suite.name, shared=request.shared)
        folder.write_text("suite.yaml", hide_suite(suite.text))
        folder.write_json("run.json", build_run_json(self._plan, folder.id, environment))
        return folder

    def _take_up(self, folder: RunFolder, recorder: Recorder) -> None:
        """Take in what a run had told before it was cut short; its report is no longer true."""
        for event in RecordedEvents(folder.events):
            self._state.apply(event)
            if event["event"] in run_events.FIELDS:
                recorder.continue_after(event["time"])
        reject_overtaken(folder, self._plan, self._state)
        forget_cancel(folder)
        folder.write_json("run.json", build_resumed_json(folder.read_json("run.json")))
        try:
            folder.report.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable_error(folder.report, error) from None

    def _begin(self, folder: RunFolder, recorder: Recorder, environment: dict[str, Any]) -> None:
        if self._state.run is None:
            recorder.record("run_start", **build_run_start(self._plan, folder.id, environment))
            return
        cases = [case.id for job in self._plan.jobs for case in job.cases]
        argv = hide_arguments(self._plan.request.argv)
        recorder.record("run_resumed", argv=argv, environment=environment, cases=cases)

    async def _look_before(self) -> list[Launch]:
        """Return the launch of each job; refuse what can be refused before one starts."""
        try:
            looked = await run_preflight(self._plan, self._say)
            self._plan = looked.plan
            self._left_out = looked.excluded
            await asyncio.to_thread(reject_over_capacity, self._plan)
            prepared = await asyncio.to_thread(prepare_launches, self._plan)
        except asyncio.CancelledError:
            abandon_probes()
            raise
        await check_before_start(self._plan, prepared, self._say, looked.host_facts)
        return prepared

    async def _run_jobs(
        self, prepared: list[Launch], folder: RunFolder, recorder: Recorder
    ) -> None:
        launch_of_job = {
            job.number: launch for job, launch in zip(self._plan.jobs, prepared, strict=True)
        }
        turns = self._plan.launch_order
        while turns:
            await self._turns.run(self._plan, turns, launch_of_job, folder, recorder)
            turns = self._further(recorder) or self._retries(recorder)

    def _further(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return further launches of cases that repeat until something."""
        if self._turns.stopped:
            return ()
        try:
            return plan_further_jobs(self._plan.jobs, recorder)
        except SpbenchError as error:
            self._errors.append(error)
            return ()

    def _retries(self, recorder: Recorder) -> tuple[Job, ...]:
        """Return the launches for another try of what did not pass, as often as was asked for."""
        again = () if self._turns.stopped else self._to_retry()
        if not again:
            return ()
        try:
            recorder.record("retry", cases=[case.id for job in again for case in job.cases])
        except SpbenchError as error:
            self._errors.append(error)
            return ()
        self._turns.missing = False
        return self._plan.order_jobs(again)

    def _to_retry(self) -> tuple[Job, ...]:
        """Return the cases that did not pass and have tries left, in the jobs of the plan."""
        most = self._plan.request.retries
        failed = [
            case.id
            for case in self._state.cases.values()
            if case.status.is_bad and len(case.verdict.previous_attempts) < most
        ]
        return select_cases(self._plan.jobs, failed)

    def _finish(self, folder: RunFolder, recorder: Recorder) -> EndedRun:
        why = self._stop.message or "the run ended before this case"
        for case in self._state.cases.values():
            if is_open(case):
                status = CaseStatus.CANCELLED if self._stop.code else CaseStatus.SKIPPED
                cut = f"did not run: {why}" if case.verdict.started is None else why
                judge_case(recorder, case.id, Fault(CaseStatus.CANCELLED, cut), status)
        cases, misfits = build_cases(self._state)
        for case_id, reason in misfits:
            judge_case(recorder, case_id, Fault(CaseStatus.ERROR, reason))
        end = self._run_end()
        try:
            recorder.record("run_end", **end)
            report = build_document(self._state, cases)
            folder.write_chunks("report.json", report.chunks())
            self._write_end(folder, end)
            index_ended_run(folder, report.head, report.cases)
        except SpbenchError as error:
            self._errors.append(error)
            end = self._run_end()
            with suppress(SpbenchError):  # as much of it as can still be written
                recorder.record("run_end", **end)
                self._write_end(folder, end)
            self._state.apply(make_run_event("run_end", **end))
            report = build_document(self._state, cases)
        return EndedRun(folder, ExitCode(end["exit_code"]), report)

    def _write_end(self, folder: RunFolder, end: dict[str, Any]) -> None:
        told = {name: end[name] for name in ("verdict", "exit_code")}
        told |= {"finished": clock.now(), "counts": self._state.counts()}
        told |= {"load_after": end["load"], "fingerprint": self._state.machines.fingerprint()}
        folder.write_json("run.json", folder.read_json("run.json") | told)

    def _run_end(self) -> dict[str, Any]:
        verdict, code = self._verdict()
        flaky = self._flaky()
        fails = self._plan.request.fail_on_flaky
        return {
            "verdict": verdict,
            "exit_code": int(code),
            "errors": [*self._left_out, *map(str, self._errors), *(flaky if fails else ())],
            "findings": [*collect_findings_or_defect(self._state), *(() if fails else flaky)],
            "load": read_load(),
        }

    def _flaky(self) -> list[str]:
        cases = self._state.cases.values()
        flaky = [case for case in cases if case.verdict.final_status == CaseStatus.FLAKY]
        findings = []
        for case in flaky:
            last = case.verdict.previous_attempts[-1]
            findings.append(
                f"case {case.id} is flaky: it passed at try {case.verdict.attempts}, after: "
                f"{last.reason or last.status}"
            )
        return findings

    def _verdict(self) -> tuple[RunStatus, ExitCode]:
        """The first that applies of interrupted, budget, missing, error and failed."""
        if self._stop.code is not None:
            return RunStatus.CANCELLED, self._stop.code
        verdict, code = judge_run(self._state.cases.values())
        codes = {error.exit_code for error in self._errors}
        if self._turns.missing or ExitCode.MISSING in codes:
            return RunStatus.ERROR, ExitCode.MISSING
        if codes:
            return RunStatus.ERROR, ExitCode.ERROR
        less = self._left_out or (self._plan.request.fail_on_flaky and self._flaky())
        if less and code == ExitCode.PASSED:
            return RunStatus.FAILED, ExitCode.FAILED  # less ran, or passed, than was asked for
        return verdict, code
