"""Collect a batch job: record a run from the files of its ranks."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from spbench.batch.plan_file import LOG_NAME, BatchLaunch, BatchPlan, read_plan
from spbench.batch.replay import LaunchReplay, ReplayClock, ReplayResult
from spbench.engine.connections.descriptors import raise_file_limit
from spbench.engine.faults.launcher_output import read_tail
from spbench.engine.recorder import Recorder, View
from spbench.engine.run import EndedRun
from spbench.engine.verdicts import record_verdicts
from spbench.errors import ExitCode, FailedRunError, MissingError, SpbenchError, UsageError
from spbench.record.case_figures import is_open
from spbench.record.findings import collect_findings_or_defect
from spbench.record.judge import judge_run
from spbench.record.number_formatting import replace_controls
from spbench.record.runs.event_log import EventLog, unwritable_error
from spbench.record.runs.files import PRIVATE, read_file
from spbench.record.runs.folder import RunFolder, unwritable_home_error
from spbench.record.runs.history import index_ended_run
from spbench.record.state import RunState
from spbench.report.build import build_cases, build_document
from spbench.safe_files import make_folders
from spbench.suites.loader import MAX_BYTES
from spbench_core.events.batch_files import (
    LaunchFolder,
    list_launches,
    parse_time,
    read_words,
    signal_name,
)
from spbench_core.events.statuses import CaseStatus, RunStatus

QUIET = 30.0
"""Seconds without a heartbeat after which a batch job without an end counts as dead."""
_LOGS = ("stdout.log", "stderr.log")
_RUN_START = {"suite", "description", "argv", "seed", "environment", "cases"}
_RUN_JSON = {"suite", "file", "argv", "cwd", "environment", "seed", "system", "scheduler"}


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The end of a batch job.

    Attributes:
        time: Seconds since the epoch; None if the script has not recorded an end.
        signal: The signal that ended it, if any.
        alive: Whether the job still runs.
    """

    time: float | None
    signal: str | None
    alive: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A launch, and its cases that no later launch runs again.

    Attributes:
        last: Whether it is the last launch of its job.
    """

    planned: BatchLaunch
    folder: LaunchFolder
    cases: tuple[str, ...]
    last: bool

    @property
    def resumed(self) -> bool:
        """Whether it was interrupted, and a later launch runs the remaining cases."""
        return self.folder.was_interrupted and not self.last


def collect(batch: Path, home: Path, state: RunState, view: View) -> EndedRun:
    """Record the run of a batch job's folder, and replace a run collected before.

    Raises:
        UsageError: The folder is not that of a batch job.
        MissingError: The job has not begun, or the home cannot be written.
        FailedRunError: The run's folder cannot be written.
    """
    raise_file_limit()  # the files of all ranks of a launch are open at once
    plan = read_plan(batch)
    start = _start_time(batch)
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


def _start_time(batch: Path) -> float:
    """Return the time at which the script began, in seconds since the epoch.

    Raises:
        MissingError: The job has not begun, or has not launched anything.
    """
    fields = read_words(batch / "starts")
    start = parse_time(fields[0]) if fields else None
    if start is not None:
        return start
    log = batch / LOG_NAME
    if log.exists():
        last = read_tail(log).strip().splitlines()[-1:] or ["it is empty"]
        raise MissingError(
            f"the batch job of {batch} has launched nothing yet: it is in its set-up (modules and "
            f"lines of launch.batch), or ended there; {log}: {replace_controls(last[0])}"
        )
    raise MissingError(
        f"the batch job of {batch} has not begun: submit {batch / 'job.sh'}, or wait until the "
        "scheduler starts it"
    )


def _replace_run(draft: Path, path: Path, drafts: Path) -> None:
    make_folders(path.parent)
    if path.exists():
        if RunFolder(path).read_json("run.json").get("collected") is None:
            raise UsageError(f"{path} is a run that was not collected; choose another --home")
        path.rename(drafts / "former")
    draft.rename(path)


def find_end(batch: Path, plan: BatchPlan) -> BatchEnd:
    """Return the end of a batch job, from its script and its ranks' heartbeats.

    If the ranks of a launch have not written events so far, the start timeout applies.
    """
    fields = read_words(batch / "ended")
    if fields:
        signal = fields[1] if len(fields) > 1 else None
        return BatchEnd(parse_time(fields[0]), signal, alive=False)
    newest = [(job, list_launches(batch / "jobs" / str(job.number))[-1:]) for job in plan.jobs]
    start_timeouts = [job.start_timeout for job, last in newest if any(map(_is_starting, last))]
    patience = max([QUIET, *start_timeouts])
    times = [0.0]
    for pattern in ("starts", "jobs/*/*/*", "jobs/*/*/events/*.jsonl"):
        for path in batch.glob(pattern):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
    return BatchEnd(None, None, time.time() - max(times) < patience)


def _is_starting(launch: LaunchFolder) -> bool:
    return launch.start_time is not None and launch.end is None and not launch.list_event_files()


def find_attempts(batch: Path, plan: BatchPlan) -> list[Attempt]:
    """Return the launches by start time, each with the cases that none after it runs."""
    attempts = []
    for planned in plan.jobs:
        later: set[str] = set()
        folders = list_launches(batch / "jobs" / str(planned.number))
        for index, folder in reversed(list(enumerate(folders))):
            ids = {case["id"] for case in folder.read_cases()} & set(planned.cases)
            cases = tuple(case for case in planned.cases if case in ids - later)
            later |= ids
            if cases and folder.start_time is not None:
                is_last = index == len(folders) - 1
                attempts.append(Attempt(planned, folder, cases, is_last))
    return sorted(attempts, key=lambda attempt: attempt.folder.start_time or 0.0)


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
        self._missing = False

    def _suite_text(self) -> str:
        """Return the suite of the batch job; empty if it cannot be read."""
        try:
            return read_file(self._batch / "suite.yaml", MAX_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def record(self, state: RunState, view: View) -> EndedRun:
        self._state = state
        self._folder.write_text("suite.yaml", self._suite_text())
        self._folder.write_json("run.json", self._run_json())
        log = EventLog(self._folder.events)
        try:
            self._recorder = Recorder(log, state, view, self._clock)
            self._recorder.record("run_start", **self._run_start())
            for number, attempt in enumerate(find_attempts(self._batch, self._plan), 1):
                self._replay_attempt(number, attempt)
            return self._finish()
        finally:
            log.close()

    def _run_json(self) -> dict[str, Any]:
        host = self._plan.environment.get("host")
        return {
            "id": self._folder.id,
            **self._plan.model_dump(mode="json", include=_RUN_JSON),
            "console": {"pid": None, "host": host, "started": self._start},
            "collected": str(self._batch.absolute()),
        }

    def _run_start(self) -> dict[str, Any]:
        return {"id": self._folder.id, **self._plan.model_dump(mode="json", include=_RUN_START)}

    # Launches

    def _replay_attempt(self, number: int, attempt: Attempt) -> None:
        planned = attempt.planned
        started = attempt.folder.start_time
        self._clock.now = started or self._clock.now
        self._copy_logs(number, attempt)
        self._recorder.record(
            "job_start",
            job=number,
            launcher=planned.launcher,
            version=planned.version,
            argv=list(planned.argv),
            hostfile=None,
            env=planned.env,
            np=planned.np,
            cases=list(attempt.cases),
            oversubscribed=False,
            asked=planned.asked,
        )
        described = {case["id"]: case for case in self._plan.cases}
        replay = LaunchReplay(
            number, planned, attempt.folder, attempt.cases, described, self._recorder, self._clock
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
        planned = attempt.planned
        name = f"jobs/{job}"
        folder = self._folder.job(job)
        argv = {"argv": planned.argv, "cwd": self._plan.cwd}
        self._folder.write_json(f"{name}/argv.json", argv)
        self._folder.write_json(f"{name}/env.json", planned.env)
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
        self._missing = self._missing or fault.missing
        left = [case for case in attempt.cases if self._is_open(case)]
        started = any(self._state.cases[case].verdict.started for case in attempt.cases)
        if started and fault.status != CaseStatus.CANCELLED:
            # If a rank's last event is missing after the last case, that case is an error.
            hit = fault.case or replayed.current_case or attempt.cases[-1]
            left = [hit] if hit in attempt.cases else left[:1]
        for case in left:
            self._judge(case, fault.status, fault.message, fault.traceback)

    def _is_open(self, case: str) -> bool:
        return is_open(self._state.cases[case])

    def _judge(
        self, case: str, status: CaseStatus, reason: str, traceback: str | None = None
    ) -> None:
        fields: dict[str, Any] = {"status": status, "reason": reason, "traceback": traceback}
        self._recorder.record("case_judged", case=case, expectations=[], **fields)
        record_verdicts(self._recorder)

    # The end

    def _finish(self) -> EndedRun:
        if self._end.time is not None:
            self._clock.advance(self._end.time, self._end.time)
        reason = self._why_unfinished()
        unfinished = [case.id for case in self._state.cases.values() if self._is_open(case.id)]
        if self._end.alive:
            self._errors.append(FailedRunError(f"{reason}; collect again when it has ended"))
        for case in unfinished:
            running = self._state.cases[case].status == CaseStatus.RUNNING
            self._judge(case, self._unfinished_status(running=running), reason)

        cases, misfits = build_cases(self._state)
        for case, reason in misfits:
            self._judge(case, CaseStatus.ERROR, reason)
        verdict, code = self._verdict()
        end = {"verdict": verdict, "exit_code": int(code)}
        self._recorder.record(
            "run_end",
            **end,
            errors=[str(error) for error in self._errors],
            findings=collect_findings_or_defect(self._state),
        )
        report = build_document(self._state, cases)
        self._folder.write_chunks("report.json", report.chunks())
        summary = end | {
            "finished": self._clock.now,
            "counts": self._state.counts(),
            "fingerprint": self._state.machines.fingerprint(),
        }
        self._folder.write_json("run.json", self._folder.read_json("run.json") | summary)
        index_ended_run(self._folder, report.head, report.cases)
        return EndedRun(self._folder, code, report)

    def _why_unfinished(self) -> str:
        if self._end.alive:
            total = len(self._state.cases)
            done = sum(not self._is_open(case) for case in self._state.cases)
            return f"the batch job still runs: {done} of {total} cases have ended"
        if self._end.signal is not None:
            elapsed = self._clock.now - self._start
            return (
                f"the batch job got {signal_name(self._end.signal)}, {elapsed:.0f} s after it began"
            )
        if self._end.time is None:
            return "the batch job was killed, or its node failed, before this case"
        return "the batch job ended before this case"

    def _unfinished_status(self, *, running: bool) -> CaseStatus:
        if self._end.signal is not None or self._end.alive:
            return CaseStatus.CANCELLED
        return CaseStatus.ERROR if running else CaseStatus.SKIPPED

    def _verdict(self) -> tuple[RunStatus, ExitCode]:
        """Return the first status that applies of interrupted, missing, error and failed."""
        if self._end.signal is not None:
            interrupted = self._end.signal == "INT"
            return RunStatus.CANCELLED, ExitCode.INTERRUPTED if interrupted else ExitCode.TERMINATED
        if self._missing:
            return RunStatus.ERROR, ExitCode.MISSING
        if self._errors:
            return RunStatus.ERROR, ExitCode.ERROR
        return judge_run(self._state.cases.values())
