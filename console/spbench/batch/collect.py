"""Collect a batch job: record a run from the files of its ranks."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from spbench.batch.plan_file import BatchPlan, read_plan
from spbench.batch.progress import Attempt, find_attempts, find_end, read_start_time
from spbench.batch.replay import LaunchReplay, ReplayClock, ReplayResult
from spbench.engine.connections.descriptors import raise_file_limit
from spbench.engine.judging import judge_ready_cases
from spbench.engine.recorder import Recorder, View
from spbench.engine.run import EndedRun
from spbench.errors import ExitCode, FailedRunError, SpbenchError, UsageError
from spbench.record.case_figures import is_open
from spbench.record.findings import collect_findings_or_defect
from spbench.record.judge import judge_run
from spbench.record.planted_faults import add_found_fault
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.files import PRIVATE, read_file, unwritable_error
from spbench.record.runs.folder import RunFolder, unwritable_home_error
from spbench.record.runs.history import index_ended_run
from spbench.record.state import RunState
from spbench.report.build import build_cases, build_document
from spbench.safe_files import make_folders
from spbench.suites.loader import MAX_BYTES
from spbench_core.events.batch_files import make_signal_name
from spbench_core.events.statuses import CaseStatus, RunStatus

_LOGS = ("stdout.log", "stderr.log")
_RUN_START = {"suite", "description", "argv", "seed", "environment", "cases"}
_RUN_JSON = {"suite", "file", "argv", "cwd", "environment", "seed", "system", "scheduler"}


def collect(batch: Path, home: Path, state: RunState, view: View) -> EndedRun:
    """Record the run of a batch job's folder, and replace a run collected before.

    Raises:
        UsageError: The folder does not belong to a batch job.
        MissingError: The job has not begun, or the home cannot be written.
        FailedRunError: The run's folder cannot be written.
    """
    raise_file_limit()  # the files of all ranks of a launch are open at once
    plan = read_plan(batch)
    start = read_start_time(batch)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(start))
    run_id = f"{stamp}-{plan.mark}"
    try:
        make_folders(home)
        drafts = Path(mkdtemp(prefix="collecting-", dir=home))  # no other user can write there
    except OSError as error:
        raise unwritable_home_error(home, error) from None
    folder = RunFolder(drafts / run_id)
    try:
        folder.path.mkdir(PRIVATE)
        ended_run = _Collection(batch, plan, folder, start).record(state, view)
        path = home / "runs" / run_id
        _replace_run(folder.path, path, drafts)
    except OSError as error:
        raise unwritable_error(folder.path, error) from None
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
    return EndedRun(RunFolder(path), ended_run.exit_code, ended_run.report)


def _replace_run(draft: Path, path: Path, drafts: Path) -> None:
    make_folders(path.parent)
    if path.exists():
        if RunFolder(path).read_json("run.json").get("collected") is None:
            raise UsageError(f"{path} is a run that was not collected; choose another --home")
        path.rename(drafts / "former")
    draft.rename(path)


class _Collection:
    """The recording of one batch job."""

    def __init__(self, batch: Path, plan: BatchPlan, folder: RunFolder, start: float) -> None:
        self._batch = batch
        self._plan = plan
        self._folder = folder
        self._start = start
        self._clock = ReplayClock(start)
        self._end = find_end(batch, plan)
        self._errors: list[SpbenchError] = []
        self._lacks_something = False

    def _read_suite_text(self) -> str:
        """Return the suite of the batch job; empty if it cannot be read."""
        try:
            return read_file(self._batch / "suite.yaml", MAX_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def record(self, state: RunState, view: View) -> EndedRun:
        self._state = state
        self._folder.write_text("suite.yaml", self._read_suite_text())
        self._folder.write_json("run.json", self._build_run_json())
        log = EventLog(self._folder.events)
        try:
            self._recorder = Recorder(log, state, view, self._clock)
            self._recorder.record("run_start", **self._build_run_start())
            for number, attempt in enumerate(find_attempts(self._batch, self._plan), 1):
                self._replay_attempt(number, attempt)
            return self._finish()
        finally:
            log.close()

    def _build_run_json(self) -> dict[str, Any]:
        host = self._plan.environment.get("host")
        return {
            "id": self._folder.id,
            **self._plan.model_dump(mode="json", include=_RUN_JSON),
            "console": {"pid": None, "host": host, "started": self._start},
            "collected": str(self._batch.absolute()),
        }

    def _build_run_start(self) -> dict[str, Any]:
        return {"id": self._folder.id, **self._plan.model_dump(mode="json", include=_RUN_START)}

    def _replay_attempt(self, number: int, attempt: Attempt) -> None:
        planned_job = attempt.planned_job
        start_time = attempt.folder.start_time
        self._clock.now = start_time or self._clock.now
        self._copy_logs(number, attempt)
        self._recorder.record(
            "job_start",
            job=number,
            launcher=planned_job.launcher,
            version=planned_job.version,
            argv=list(planned_job.argv),
            hostfile=None,
            env=planned_job.env,
            np=planned_job.np,
            cases=list(attempt.cases),
            oversubscribed=False,
            asked=planned_job.asked,
        )
        case_by_id = {case["id"]: case for case in self._plan.cases}
        replay = LaunchReplay(
            number,
            planned_job,
            attempt.folder,
            attempt.cases,
            case_by_id,
            self._recorder,
            self._clock,
        )
        still_runs = self._end.alive and attempt.last and attempt.folder.end is None
        replayed = replay.run(still_runs=still_runs)
        if not still_runs:
            status = attempt.folder.end.status if attempt.folder.end else None
            reason = replayed.fault.message if replayed.fault else None
            self._recorder.record("job_end", job=number, reason=reason, status=status, strangers=0)
        if not attempt.resumed:
            self._assign_fault(attempt, replayed)

    def _copy_logs(self, job: int, attempt: Attempt) -> None:
        planned_job = attempt.planned_job
        name = f"jobs/{job}"
        folder = self._folder.create_job_folder(job)
        argv = {"argv": planned_job.argv, "cwd": self._plan.cwd}
        self._folder.write_json(f"{name}/argv.json", argv)
        self._folder.write_json(f"{name}/env.json", planned_job.env)
        for log in _LOGS:
            source = attempt.folder.path / log
            if source.is_file():
                shutil.copyfile(source, folder / log)

    def _assign_fault(self, attempt: Attempt, replayed: ReplayResult) -> None:
        """Assign a fault to the case that it hit, or to all if no case had started."""
        fault = replayed.fault
        if replayed.failure is not None:
            reason = f"{type(replayed.failure).__name__}: {replayed.failure}"
            self._errors.append(FailedRunError(f"the events cannot be read: {reason}"))
        if fault is None:
            return
        self._lacks_something = self._lacks_something or fault.missing
        hit_cases = [case for case in attempt.cases if self._is_open(case)]
        has_started = any(self._state.cases[case].execution.started for case in attempt.cases)
        if has_started and fault.status != CaseStatus.CANCELLED:
            # If a rank's last event is missing after the last case, that case is an error.
            hit = fault.case or replayed.current_case or attempt.cases[-1]
            hit_cases = [hit] if hit in attempt.cases else hit_cases[:1]
        for case in hit_cases:
            identity = self._state.cases[case].identity
            is_planted = has_started and fault.shows(identity.inject, identity.np)
            reason = (
                add_found_fault(fault.message, identity.inject) if is_planted else fault.message
            )
            self._judge(case, fault.status, reason, fault.traceback)

    def _is_open(self, case: str) -> bool:
        return is_open(self._state.cases[case])

    def _judge(
        self, case: str, status: CaseStatus, reason: str, traceback: str | None = None
    ) -> None:
        fields: dict[str, Any] = {"status": status, "reason": reason, "traceback": traceback}
        self._recorder.record("case_judged", case=case, expectations=[], **fields)
        judge_ready_cases(self._recorder)

    def _finish(self) -> EndedRun:
        if self._end.time is not None:
            self._clock.advance(self._end.time, self._end.time)
        reason = self._explain_unfinished()
        unfinished = [case.id for case in self._state.cases.values() if self._is_open(case.id)]
        if self._end.alive:
            self._errors.append(FailedRunError(f"{reason}; collect again when it has ended"))
        for case in unfinished:
            running = self._state.cases[case].status == CaseStatus.RUNNING
            self._judge(case, self._choose_unfinished_status(running=running), reason)

        cases, unreportable = build_cases(self._state)
        for case, reason in unreportable:
            self._judge(case, CaseStatus.ERROR, reason)
        status, code = self._judge_run()
        result_fields = {"verdict": status, "exit_code": int(code)}
        self._recorder.record(
            "run_end",
            **result_fields,
            errors=[str(error) for error in self._errors],
            findings=collect_findings_or_defect(self._state),
        )
        report = build_document(self._state, cases)
        self._folder.write_chunks("report.json", report.chunks())
        end_fields = result_fields | {
            "finished": self._clock.now,
            "counts": self._state.counts(),
            "fault_outcome": self._state.fault_outcome,
            "fingerprint": self._state.machines.fingerprint(),
        }
        self._folder.write_json("run.json", self._folder.read_json("run.json") | end_fields)
        index_ended_run(self._folder, report.head, report.cases)
        return EndedRun(self._folder, code, report)

    def _explain_unfinished(self) -> str:
        if self._end.alive:
            total = len(self._state.cases)
            done = sum(not self._is_open(case) for case in self._state.cases)
            return f"the batch job still runs: {done} of {total} cases have ended"
        if self._end.signal is not None:
            elapsed = self._clock.now - self._start
            signal_name = make_signal_name(self._end.signal)
            return f"the batch job got {signal_name}, {elapsed:.0f} s after it began"
        if self._end.time is None:
            return "the batch job was killed, or its node failed, before this case"
        return "the batch job ended before this case"

    def _choose_unfinished_status(self, *, running: bool) -> CaseStatus:
        if self._end.signal is not None or self._end.alive:
            return CaseStatus.CANCELLED
        return CaseStatus.ERROR if running else CaseStatus.SKIPPED

    def _judge_run(self) -> tuple[RunStatus, ExitCode]:
        """Return the first status that applies of interrupted, missing, error and failed."""
        if self._end.signal is not None:
            interrupted = self._end.signal == "INT"
            return RunStatus.CANCELLED, ExitCode.INTERRUPTED if interrupted else ExitCode.TERMINATED
        if self._lacks_something:
            return RunStatus.ERROR, ExitCode.MISSING
        if self._errors:
            return RunStatus.ERROR, ExitCode.ERROR
        return judge_run(self._state.cases.values())
