"""A run: its jobs one after another, what a fault leaves over in a new one, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.plan import RunPlan, check_hosts, launches
from spbench.engine.recorder import Recorder, View
from spbench.engine.watch import Fault
from spbench.errors import ExitCode, SpbenchError
from spbench.launch.jobs import Job
from spbench.record.environment import facts
from spbench.record.event_log import EventLog
from spbench.record.findings import findings
from spbench.record.folder import RunFolder, create
from spbench.record.judge import verdict_of
from spbench.record.state import RunState
from spbench.report.build import build_report
from spbench.suites import Case

_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    state: RunState
    folder: RunFolder
    exit_code: ExitCode
    report: dict[str, Any] = field(default_factory=dict)


class Run:
    """One execution of a suite."""

    def __init__(self, plan: RunPlan, state: RunState, view: View) -> None:
        self._plan = plan
        self._view = view
        self._state = state
        self._errors: list[SpbenchError] = []
        self._missing = False
        self._stopped: tuple[str, ExitCode] | None = None
        self._job: JobRun | None = None
        self._started = time.monotonic()

    async def execute(self) -> Outcome:
        """Run all jobs and write the run folder.

        Raises:
            SpbenchError: Nothing could be started: a host, a launcher, the folder. A run that has
                started never raises; its outcome tells.
        """
        prepared = launches(self._plan)
        await check_hosts(self._plan, prepared)
        folder = create(self._plan.request.home, self._plan.suite.name)
        environment = facts(self._plan.request.environ)
        self._write_start(folder, environment)
        log = EventLog(folder.events)
        recorder = Recorder(log, self._state, self._view)
        self._catch_signals()
        try:
            recorder.say("run_start", **self._run_start(folder, environment))
            await self._run_jobs(folder, recorder)
            return self._finish(folder, recorder)
        finally:
            self._release_signals()
            log.close()

    def _write_start(self, folder: RunFolder, environment: dict[str, Any]) -> None:
        request = self._plan.request
        folder.write_text("suite.yaml", self._plan.suite.text)
        folder.write_json(
            "run.json",
            {
                "id": folder.id,
                "suite": self._plan.suite.name,
                "file": str(request.suite),
                "argv": list(request.argv),
                "console": {
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "started": time.time(),
                },
                "environment": environment,
                "seed": self._seed(),
            },
        )

    def _run_start(self, folder: RunFolder, environment: dict[str, Any]) -> dict[str, Any]:
        jobs = self._plan.jobs
        size = {case.id: job.np for job in jobs for case in job.cases}
        # The report keeps the file's order, whatever order the jobs run in.
        cases = [case for case in self._plan.suite.cases if case.id in size]
        planted = {case.id: case for job in jobs for case in job.cases}
        return {
            "id": folder.id,
            "suite": self._plan.suite.name,
            "description": self._plan.suite.description,
            "argv": list(self._plan.request.argv),
            "seed": self._seed(),
            "environment": environment,
            "cases": [describe(planted[case.id], size[case.id]) for case in cases],
        }

    def _seed(self) -> int | None:
        """The seed that all cases share; None where they differ."""
        seeds = {case.params.get("seed") for job in self._plan.jobs for case in job.cases}
        return seeds.pop() if len(seeds) == 1 else None

    async def _run_jobs(self, folder: RunFolder, recorder: Recorder) -> None:
        waiting = deque(self._plan.jobs)
        budget = self._budget()
        number = 0
        while waiting and self._stopped is None:
            number += 1
            job = replace(waiting.popleft(), number=number)
            request = self._plan.request
            self._job = JobRun(
                JobPlan(job, self._plan.hosts(job), request.home, request.environ),
                folder,
                recorder,
            )
            try:
                fault = await self._job.run()
            except SpbenchError as error:
                self._errors.append(error)
                self._give_up(recorder, job, Fault("error", str(error)))
                break
            if fault is not None:
                left = self._settle(recorder, job, fault, self._job.current_case)
                if left is not None:
                    waiting.appendleft(left)
        if budget is not None:
            budget.cancel()

    def _budget(self) -> asyncio.TimerHandle | None:
        seconds = self._plan.request.budget
        if seconds is None:
            return None
        sentence = f"the budget of {seconds:g} s is used up"
        loop = asyncio.get_running_loop()
        return loop.call_later(seconds, self.stop, sentence, ExitCode.BUDGET)

    def stop(self, sentence: str, code: ExitCode) -> None:
        """End the run: its running case is cancelled. A second call leaves ranks no time."""
        again = self._stopped is not None
        self._stopped = self._stopped or (sentence, code)
        if self._job is not None:
            self._job.cancel(sentence, at_once=again)

    def _settle(
        self, recorder: Recorder, job: Job, fault: Fault, current: str | None
    ) -> Job | None:
        """Give the fault to the case it ended; return the job of what can still be run."""
        self._missing = self._missing or fault.missing
        open_cases = [case for case in job.cases if self._open(case)]
        started = any(self._state.cases[case.id].started is not None for case in job.cases)
        if fault.status == "cancelled" or not started:
            self._give_up(recorder, job, fault)
            return None
        hit = [case for case in open_cases if case.id == current] or open_cases[:1]
        for case in hit:
            _judge(recorder, case.id, fault)
        left = tuple(case for case in open_cases if case not in hit)
        return replace(job, cases=left) if left else None

    def _open(self, case: Case) -> bool:
        return self._state.cases[case.id].status in ("waiting", "running")

    def _give_up(self, recorder: Recorder, job: Job, fault: Fault) -> None:
        for case in job.cases:
            if self._open(case):
                _judge(recorder, case.id, fault)

    def _finish(self, folder: RunFolder, recorder: Recorder) -> Outcome:
        verdict, code = self._verdict()
        why = self._stopped[0] if self._stopped else "the run ended before this case"
        for case in self._state.cases.values():
            if case.status in ("waiting", "running"):
                status = "cancelled" if self._stopped else "skipped"
                _judge(recorder, case.id, Fault("cancelled", why), status)
        said = findings(self._state.cases.values())
        try:
            recorder.say(
                "run_end",
                verdict=verdict,
                exit_code=int(code),
                errors=[str(error) for error in self._errors],
                findings=said,
            )
            report = build_report(self._state)
            folder.write_json("report.json", report)
            ended = {"verdict": verdict, "exit_code": int(code), "finished": time.time()}
            folder.write_json("run.json", folder.read_json("run.json") | ended)
        except SpbenchError as error:
            code = max(code, ExitCode.ERROR) if code < ExitCode.MISSING else code
            self._state.errors = list(dict.fromkeys([*self._state.errors, str(error)]))
            report = build_report(self._state)
        return Outcome(self._state, folder, code, report)

    def _verdict(self) -> tuple[str, ExitCode]:
        """The first that applies of interrupted, budget, missing, error and failed."""
        if self._stopped is not None:
            return "cancelled", self._stopped[1]
        verdict, code = verdict_of(self._state.cases.values())
        codes = {error.exit_code for error in self._errors}
        if self._missing or ExitCode.MISSING in codes:
            return "error", ExitCode.MISSING
        return ("error", ExitCode.ERROR) if codes else (verdict, code)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, name in _SIGNALS.items():
            loop.add_signal_handler(number, self._on_signal, number, name)

    def _release_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals, name: str) -> None:
        code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED
        self.stop(f"cancelled by {name} after {time.monotonic() - self._started:.1f} s", code)


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


def describe(case: Case, np: int) -> dict[str, Any]:
    """Return all that readers of the run need to know of a case, without the catalog."""
    entry = case.entry
    places: Sequence[dict[str, Any]] = [entry.place(dict(case.params), rank) for rank in range(np)]
    return {
        "id": case.id,
        "name": case.name,
        "benchmark": case.benchmark,
        "params": dict(case.params),
        "np": np,
        "repeat": case.repeat,
        "inject": case.inject,
        "measures": entry.measures,
        "metrics": [
            {"name": m.name, "unit": m.unit, "better": m.better, "fold": m.fold}
            for m in entry.metrics
        ],
        "checks": list(entry.checks),
        "expect": [
            {"metric": item.metric, "op": item.op, "limit": item.limit} for item in case.expect
        ],
        "places": places if any(places) else [],
    }
