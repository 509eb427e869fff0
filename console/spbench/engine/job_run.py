"""One job while it runs: its launcher, its ranks' events, its deadlines, its end."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench.engine import processes
from spbench.engine.address import advertised, bind_address
from spbench.engine.collector import Collector, Event, RankConnection
from spbench.engine.recorder import Recorder
from spbench.engine.watch import Fault, Watch
from spbench.errors import SpbenchError
from spbench.launch.hosts import Hosts
from spbench.launch.jobs import Job, Launch, chosen_elsewhere, prepare
from spbench.record.folder import RunFolder
from spbench.record.judge import judge
from spbench.record.notable_env import notable
from spbench_workers import protocol

TICK = 0.1
DRAIN = 1.5
"""Seconds that events may still come after the launcher has ended."""
SETTLE = 2.0
"""Seconds that a launcher is given to say why a rank was lost."""
ANSWER = 1.0
"""Seconds that ranks are given to say where they stand."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL: mpirun_rsh ends ranks up to 3 s after itself."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job and what it needs to start."""

    job: Job
    hosts: Hosts | None
    home: Path
    environ: Mapping[str, str]


class JobRun:
    """Runs one job. It listens to the collector, and notes the first thing that goes wrong."""

    def __init__(self, plan: JobPlan, folder: RunFolder, recorder: Recorder) -> None:
        self._plan = plan
        self._job = plan.job
        self._folder = folder
        self._recorder = recorder
        self._wake = asyncio.Event()
        self._grace = GRACE
        self._token = secrets.token_hex(16)
        self._collector = Collector(self._token, self)
        self._ranks: dict[int, RankConnection] = {}
        self._where: dict[int, str] = {}
        self._failure: Exception | None = None
        self._strangers = 0
        self._answered = False
        items = [(case.id, repeat) for case in self._job.cases for repeat in range(case.repeat)]
        self._watch = Watch(
            np=self._job.np,
            items=items,
            start_timeout=self._job.settings.start_timeout,
            case_timeouts={case.id: case.launch.timeout for case in self._job.cases},
            launched=time.monotonic(),
        )

    async def run(self) -> Fault | None:
        """Run the job to its end, whatever happens, and return what went wrong.

        Raises:
            SpbenchError: The launcher could not be started, or the run folder not be written.
        """
        launch, process = await self._start()
        try:
            await self._supervise(process)
            await self._explain(process, launch)
        finally:
            fault = self._watch.fault
            if fault is None:
                await self._wait_for_exit(process)
            await self._collector.close()
            await processes.end(process, self._folder.id, self._grace)
        if self._failure is not None:
            raise self._failure
        self._recorder.say(
            "job_end",
            job=self._job.number,
            reason=fault.sentence if fault else None,
            status=process.returncode,
            strangers=self._strangers,
        )
        return fault

    @property
    def current_case(self) -> str | None:
        """The id of the case that is not through yet; None when all are."""
        item = self._watch.current
        return item[0] if item else None

    def cancel(self, sentence: str, *, at_once: bool = False) -> None:
        """End the job: its running case is cancelled. ``at_once`` leaves ranks no time."""
        if self._watch.fault is None:
            self._watch.fault = Fault("cancelled", sentence)
        if at_once:
            self._grace = 0.0
        self._wake.set()

    # Starting

    async def _start(self) -> tuple[Launch, asyncio.subprocess.Process]:
        plan = self._plan
        names = plan.hosts.names if plan.hosts else ()
        unknown = chosen_elsewhere(plan.job.settings, plan.hosts, plan.environ)
        port = await self._collector.listen(bind_address(names, unknown=unknown))
        addresses = advertised(names, unknown=unknown)
        private = {
            protocol.ENV_COLLECTOR: ",".join(f"{host}:{port}" for host in addresses),
            protocol.ENV_TOKEN: self._token,
            protocol.ENV_RUN: self._folder.id,
        }
        launch = prepare(plan.job, plan.hosts, plan.home, private, plan.environ)
        command = replace(launch.command, env={**launch.command.env, **private})
        folder = self._folder.job(self._job.number)
        env = notable(command.env)
        launcher, library = launch.launcher.name, launch.library.version_text
        self._watch.names = f"{launcher} ({launch.version}) and {library}"
        self._folder.write_json(
            f"jobs/{self._job.number}/argv.json", {"argv": command.argv, "cwd": os.getcwd()}
        )
        self._folder.write_json(f"jobs/{self._job.number}/env.json", env)
        if launch.hostfile_text is not None:
            (folder / "hostfile").write_text(launch.hostfile_text)
        self._recorder.say(
            "job_start",
            job=self._job.number,
            launcher=launcher,
            version=launch.version,
            argv=list(command.argv),
            hostfile=launch.hostfile_text,
            env=env,
            np=self._job.np,
            cases=[case.id for case in self._job.cases],
            oversubscribed=launch.oversubscribed,
        )
        self._watch.launched = self._watch.waiting_since = time.monotonic()
        return launch, await processes.start(command, folder)

    # Supervising

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        """Wait until all ranks are through, or something is wrong."""
        exited = asyncio.create_task(process.wait())
        exited.add_done_callback(lambda _: self._wake.set())
        exit_seen = 0.0
        while not self._watch.done and not self._watch.overdue(time.monotonic()):
            if exited.done():
                exit_seen = exit_seen or time.monotonic()
                if time.monotonic() - exit_seen > DRAIN:
                    self._watch.fail(_exit_sentence(process, self._watch))
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK)
        exited.cancel()

    async def _explain(self, process: asyncio.subprocess.Process, launch: Launch) -> None:
        """Add to a fault what the ranks and the launcher know of it."""
        fault = self._watch.fault
        if fault is None or self._grace == 0.0 or fault.status == "cancelled":
            return
        if fault.status == "timeout":
            await self._ask_where(fault)
        elif fault.traceback is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), SETTLE)
            said = launch.launcher.explain(self._output())
            if said:
                self._watch.fault = replace(fault, sentence=f"{fault.sentence}: {said}")

    def _output(self) -> str:
        """What the launcher wrote: Hydra tells of a rank's end on its stdout."""
        folder = self._folder.job(self._job.number)
        logs = (folder / "stderr.log", folder / "stdout.log")
        return "\n".join(path.read_text(errors="replace")[-100_000:] for path in logs)

    async def _ask_where(self, fault: Fault) -> None:
        """Ask the ranks what they are doing, and name those that do not do what most do."""
        for connection in self._ranks.values():
            connection.reply(reply="where")
        deadline = time.monotonic() + ANSWER
        while len(self._where) < len(self._ranks) and time.monotonic() < deadline:
            await asyncio.sleep(TICK / 2)
        self._watch.fault = self._watch.located(fault, self._where)

    async def _wait_for_exit(self, process: asyncio.subprocess.Process) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), self._grace)

    # Listening to the collector

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Record a batch, then act on what it says."""
        try:
            self._recorder.take(self._job.number, *self._known(source, lines, events))
            now = time.monotonic()
            for event in events:
                self._act(source, event, now)
        except Exception as error:
            # In a callback of the event loop it would be lost; `run` raises it once all is ended.
            self._failure = self._failure or error
            self._watch.fail(str(error))
        if self._watch.fault is not None:
            self._wake.set()

    def _known(
        self, source: RankConnection, lines: list[bytes], events: list[Event]
    ) -> tuple[list[bytes], list[Event]]:
        """Leave out events of cases that this job does not run, or in another rank's name."""
        timeouts = self._watch.case_timeouts
        for event in events:
            if event.get("case", "") not in timeouts and "case" in event:
                self.on_violation(source, f"spoke of a case {event['case']!r} that it does not run")
            elif source.rank is not None and event["rank"] != source.rank:
                self.on_violation(source, f"spoke as rank {event['rank']}")
            else:
                continue
            return [], []
        return lines, events

    def _act(self, source: RankConnection, event: Event, now: float) -> None:
        kind = event["event"]
        if source.rank is not None:
            self._watch.heard(source.rank, now)
        if kind == "ready":
            self._on_ready(source, event, now)
        elif kind == "case_start":
            self._watch.on_case_start(event, now)
        elif kind == "case_end":
            self._watch.on_case_end(event, now)
            self._judge(event["case"])
        elif kind == "log" and event["level"] == "where":
            self._where[event["rank"]] = event["message"]
        elif kind == "log" and event["level"] == "error":
            self._on_error(event, now)
        elif kind == "bye":
            source.ended = True
            source.reply(reply="bye")
            self._watch.on_bye(event["rank"], now)
            self._wake.set()

    def _on_ready(self, source: RankConnection, event: Event, now: float) -> None:
        assert source.who is not None
        self._watch.on_ready(event, source.who.host, source.who.pid, now)
        source.rank = event["rank"]
        self._ranks[event["rank"]] = source
        if self._watch.ready and not self._answered and 0 in self._ranks:
            self._answered = True
            self._ranks[0].reply(reply="cases", cases=payload(self._job))

    def _on_error(self, event: Event, now: float) -> None:
        message = event["message"]
        lacking = message.startswith(("ModuleNotFoundError", "ImportError"))
        hint = "; pip install 'spbench[workers,mpi]' into the ranks' interpreter" if lacking else ""
        self._watch.fail(
            f"{self._watch.name(event['rank'], now)}: {message}{hint}",
            event["rank"],
            missing=lacking,
            traceback=event.get("traceback"),
        )

    def _judge(self, case_id: str) -> None:
        case = self._recorder.state.cases[case_id]
        if case.complete and case.status == "running":
            verdict = judge(case)
            self._recorder.say(
                "case_judged",
                case=case_id,
                status=verdict.status,
                reason=verdict.reason,
                expectations=verdict.expectations,
            )

    def on_violation(self, source: RankConnection, why: str) -> None:
        """A rank said what no rank says."""
        host = source.who.host if source.who else source.peer
        rank = source.rank if source.rank is not None else "?"
        self._watch.fail(f"rank {rank} on {host} {why}", source.rank)
        self._wake.set()

    def on_lost(self, source: RankConnection) -> None:
        """A rank's connection has ended: well after its bye, else it is dead or cut off."""
        if source.ended or self._watch.fault is not None or source.who is None:
            return
        now = time.monotonic()
        number = source.rank if source.rank is not None else source.who.rank
        name = self._watch.name(number, now) if number is not None else f"a rank on {source.peer}"
        sentence = f"{name}, ended without a word"
        self._watch.fail(sentence, number)
        with suppress(SpbenchError):
            self._recorder.say(
                "rank_lost",
                job=self._job.number,
                rank=number,
                host=source.who.host,
                reason=sentence,
            )
        self._wake.set()

    def on_stranger(self, peer: str, why: str) -> None:
        """Someone without the token was dropped; the run goes on."""
        self._strangers += 1


def payload(job: Job) -> list[dict[str, Any]]:
    """Return the cases as the ranks get them: one entry a repeat."""
    return [
        {
            "id": case.id,
            "benchmark": case.benchmark,
            "params": dict(case.params),
            "repeat": repeat,
            "inject": case.inject,
        }
        for case in job.cases
        for repeat in range(case.repeat)
    ]


def _exit_sentence(process: asyncio.subprocess.Process, watch: Watch) -> str:
    elapsed = time.monotonic() - watch.launched
    stage = "before all ranks were ready" if not watch.ready else "before all ranks were through"
    return f"the launcher ended with status {process.returncode} after {elapsed:.1f} s, {stage}"
