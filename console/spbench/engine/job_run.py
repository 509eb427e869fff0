"""One job while it runs: its launcher, its ranks' events, its deadlines, its end."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from spbench.engine import processes
from spbench.engine.address import way_to_console
from spbench.engine.connections.collector import Collector
from spbench.engine.faults.cause import Evidence, cause, doubtful, settled
from spbench.engine.faults.fault import Fault
from spbench.engine.faults.launcher_output import output_in, own_words
from spbench.engine.faults.lost_hosts import unknown_hosts
from spbench.engine.job_listener import JobListener
from spbench.engine.recorder import Recorder
from spbench.engine.tunnel import Tunnels
from spbench.engine.watchdog import Watchdog
from spbench.launch.choice import NOTHING_CHOSEN, LaunchChoice
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import is_local
from spbench.launch.jobs import Job, Launch, chosen_elsewhere
from spbench.launch.load import busy_here
from spbench.launch.survey.progress import Say, nobody
from spbench.launch.survey.reach import ssh_names, unfit
from spbench.record.machine.environment import notable
from spbench.record.runs.folder import RunFolder, working_folder
from spbench_core.credentials import hide_words, select_secrets
from spbench_core.events import rank_events
from spbench_core.events.statuses import CaseStatus

TICK = 0.1
DRAIN = 1.5
"""Seconds that events may still come after the launcher has ended."""
SETTLE = 2.0
"""Seconds in which launcher and ranks may still say what came of a fault that seems to be one."""
ANSWER = 1.0
"""Seconds that ranks are given to say where they stand."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL: mpirun_rsh ends ranks up to 3 s after itself."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job and what it needs to start.

    ``launch`` lacks only the values of the variables that the console gives its ranks.
    """

    job: Job
    hosts: Hosts | None
    launch: Launch
    environ: Mapping[str, str]
    chosen: LaunchChoice = NOTHING_CHOSEN


class JobRun:
    """Runs one job: starts it, waits for its end or for what goes wrong, and ends it."""

    def __init__(
        self, plan: JobPlan, folder: RunFolder, recorder: Recorder, say: Say = nobody
    ) -> None:
        self._plan = plan
        self._say = say
        self._job = plan.job
        self._folder = folder
        self._recorder = recorder
        self._hurry = asyncio.Event()
        self._token = secrets.token_hex(16)
        items = [(case.id, repeat) for case, repeat in self._job.items]
        self._watch = Watchdog(
            np=self._job.np,
            items=items,
            start_timeout=self._job.settings.start_timeout,
            case_timeouts={case.id: case.launch.timeout for case in self._job.cases},
            launched=time.monotonic(),
            silence_timeout=self._job.settings.silence_timeout,
            busy=busy_here,
            hosts=_expected_hosts(plan),
            first_rank=plan.job.first_rank,
        )
        self._listener = JobListener(self._job, recorder, self._watch)
        silence = self._job.settings.silence_timeout
        self._collector = Collector(self._token, self._listener, self._job.np, silence=silence)
        self._tunnels = Tunnels()
        self._aliases: dict[str, str] = {}
        self._segments: set[Path] = set()

    async def run(self) -> Fault | None:
        """Run the job to its end, whatever happens, and return what went wrong.

        Raises:
            SpbenchError: The launcher could not be started, or the run folder not be written.
        """
        with processes.launcher_folder(self._plan.launch.command) as variables:
            process = None
            try:
                process = await self._start(variables)
            finally:
                if process is None:
                    await self._collector.close()
                    await self._tunnels.close()
            if process is None:
                return self._watch.fault
            try:
                await self._supervise(process)
                await self._explain(process)
            finally:
                await self._let_events_arrive(process)
                await self._collector.close()
                await self._tunnels.close()
                await self._note_segments()
                await processes.end(process, self._folder.id, GRACE, self._hurry)
                await asyncio.to_thread(processes.remove_unused_segments, self._segments)
        if self._listener.failure is not None:
            raise self._listener.failure
        fault = self._watch.fault
        self._recorder.say(
            "job_end",
            job=self._job.number,
            reason=fault.sentence if fault else None,
            status=process.returncode,
            strangers=self._listener.strangers,
        )
        return fault

    @property
    def current_case(self) -> str | None:
        """The id of the case that is not through yet; None when all are."""
        item = self._watch.current
        return item[0] if item else None

    def cancel(self, sentence: str, *, at_once: bool = False) -> None:
        """End the job: its running case is cancelled. ``at_once`` leaves ranks no time."""
        self._watch.cancel(sentence)
        if at_once:
            self._hurry.set()
        self._listener.wake.set()

    # Starting

    async def _start(self, variables: Mapping[str, str]) -> asyncio.subprocess.Process | None:
        """Start the launcher with these variables too; None where the job was cancelled before."""
        plan = self._plan
        launch = self._plan.launch
        names = plan.hosts.names if plan.hosts else ()
        unknown = chosen_elsewhere(plan.job.settings, plan.hosts, plan.environ)
        way = way_to_console(names, plan.chosen, plan.job.settings.tunnel, unknown=unknown)
        port = await self._collector.listen(way.bind, way.ports)
        await self._open_tunnels(way.tunnels, port)
        if self._watch.fault is not None:
            return None
        private = {
            rank_events.ENV_COLLECTOR: ",".join(f"{host}:{port}" for host in way.told),
            rank_events.ENV_TOKEN: self._token,
            rank_events.ENV_RUN: self._folder.id,
        }
        command = replace(launch.command, env={**launch.command.env, **private})
        folder = self._folder.job(self._job.number)
        env = notable(command.env, launch.spec.hidden_env)
        argv = hide_words(command.argv, select_secrets(launch.spec.rank_env))
        launcher = launch.launcher.name
        library = launch.library.version_text
        name = f"jobs/{self._job.number}"
        self._folder.write_json(f"{name}/argv.json", {"argv": argv, "cwd": working_folder()})
        self._folder.write_json(f"{name}/env.json", env)
        if launch.hostfile_text is not None:
            self._folder.write_text(f"{name}/hostfile", launch.hostfile_text)
        self._recorder.say(
            "job_start",
            job=self._job.number,
            launcher=launcher,
            version=launch.version,
            argv=argv,
            hostfile=launch.hostfile_text,
            env=env,
            np=self._job.np,
            cases=[case.id for case in self._job.cases],
            oversubscribed=launch.spec.oversubscribed,
            asked=launch.asked,
            **({} if self._job.repeat is None else {"repeat": self._job.repeat}),
            **({} if self._job.host is None else {"first_rank": self._job.first_rank}),
        )
        programs = f"{launcher} ({launch.version}) and {library}"
        self._watch.on_launch(programs, library, time.monotonic())
        # Not part of the recorded environment: the folder has another name in each job.
        command = replace(command, env={**command.env, **variables})
        return await processes.start(command, folder, self._folder.path)

    async def _open_tunnels(self, hosts: Sequence[str], port: int) -> None:
        """Open the tunnels, unless the job is cancelled before."""
        opening = asyncio.create_task(self._tunnels.open(hosts, port, self._say))
        woken = asyncio.create_task(self._listener.wake.wait())
        await asyncio.wait({opening, woken}, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()
        if opening.done():
            opening.result()
        opening.cancel()

    # Supervising

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        """Wait until all ranks are through, or something is wrong."""
        exited = asyncio.create_task(process.wait())
        exited.add_done_callback(lambda _: self._listener.wake.set())
        exit_seen = 0.0
        noted = self._plan.launch.library.keeps_memory_in_folders
        while not self._watch.done and not self._watch.overdue(time.monotonic()):
            if exited.done():
                exit_seen = exit_seen or time.monotonic()
                if time.monotonic() - exit_seen > DRAIN:
                    self._watch.fail(_exit_sentence(process, self._watch), tentative=True)
            self._listener.wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._listener.wake.wait(), TICK)
            if self._watch.ready and not noted:
                noted = True
                await self._note_segments()
        exited.cancel()

    async def _note_segments(self) -> None:
        """Note the shared memory of the run's ranks: after their end nothing shows the owner."""
        self._segments |= await asyncio.to_thread(processes.find_segments, self._folder.id)

    async def _explain(self, process: asyncio.subprocess.Process) -> None:
        """Find the cause of a fault in what ranks and launcher know of it."""
        fault = self._watch.fault
        if fault is not None and fault.status == CaseStatus.TIMEOUT:
            await self._ask_where(fault)
        elif fault is not None and fault.status == CaseStatus.ERROR:
            if self._watch.tentative:
                await self._settle(process)
            evidence = self._evidence(process)
            if unknown_hosts(evidence.said.lost, evidence.spellings):
                self._aliases = await ssh_names(_placed_hosts(self._plan))
                evidence = self._evidence(process)
            judged = self._judged(fault, evidence)
            explained = await self._examined(judged)
            self._watch.explain(explained)
            self._listener.lost(explained)
        self._listener.closed = True

    def _judged(self, fault: Fault, evidence: Evidence) -> Fault:
        found = cause(evidence) if self._watch.tentative else None
        if found is not None or fault.traceback is not None:
            return found or fault
        more = evidence.words or evidence.said.sentence
        return replace(fault, sentence=f"{fault.sentence}: {more}") if more else fault

    async def _examined(self, fault: Fault) -> Fault:
        """Add what is wrong with hosts where no rank has come up and the launcher hides why."""
        launch = self._plan.launch
        helper = launch.launcher.helper
        if fault.rank is not None or self._watch.greeted or helper is None:
            return fault
        hosts = [placed.host for placed in launch.placement]
        bad = await unfit(hosts, working_folder(), launch.found.executable.with_name(helper))
        told = "; ".join(f"host {host}: {why}" for host, why in list(bad.items())[:4])
        return replace(fault, sentence=f"{told}; {fault.sentence}") if told else fault

    async def _settle(self, process: asyncio.subprocess.Process) -> None:
        """Wait for what may still show the cause: a launcher's word takes its time."""
        deadline = time.monotonic() + SETTLE
        while time.monotonic() < deadline and not self._hurry.is_set():
            evidence = self._evidence(process)
            ended = process.returncode is not None
            if settled(evidence):
                return
            await asyncio.sleep(TICK)  # what ranks had sent before the launcher's end is read
            if ended and not doubtful(evidence):
                return

    def _evidence(self, process: asyncio.subprocess.Process) -> Evidence:
        watch = self._watch
        launcher = self._plan.launch.launcher
        output = output_in(self._folder.path / "jobs" / str(self._job.number))
        now = time.monotonic()
        return Evidence(
            seen=watch.seen,
            said=launcher.said(output),
            name=lambda rank: watch.name(rank, now),
            waited_for=watch.unconnected,
            places=watch.expected_hosts,
            spellings=self._spellings(),
            quiet=watch.quiet(now),
            launcher=launcher.name,
            host=socket.gethostname(),
            status=process.returncode,
            misfit=watch.misfit,
            words=own_words(output),
        )

    def _spellings(self) -> dict[int, set[str]]:
        """Return the names of each rank's host: its own, the placement's, and ssh's for this."""
        names = {rank: {host} for rank, host in self._watch.hosts.items()}
        for rank, host in enumerate(_placed_hosts(self._plan)):
            names.setdefault(rank, set()).update((host, self._aliases.get(host, host)))
        return names

    async def _ask_where(self, fault: Fault) -> None:
        """Ask the ranks what they are doing, and name those that do not do what most do."""
        for connection in self._listener.ranks.values():
            connection.reply(reply="where")
        deadline = time.monotonic() + ANSWER
        where = self._listener.where
        ranks = self._listener.ranks
        while len(where) < len(ranks) and time.monotonic() < deadline:
            await asyncio.sleep(TICK / 2)
        self._watch.explain(self._watch.located(fault, where))

    async def _let_events_arrive(self, process: asyncio.subprocess.Process) -> None:
        """Let the launcher end by itself, and read what ranks that have ended had sent."""
        fault = self._watch.fault
        if fault is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE)
        await asyncio.sleep(TICK / 2)
        deadline = time.monotonic() + DRAIN
        while process.returncode is not None and self._collector.ranks:
            if time.monotonic() > deadline or self._hurry.is_set():
                return
            await asyncio.sleep(TICK / 10)


def _expected_hosts(plan: JobPlan) -> dict[int, str]:
    """Return the ranks' hosts by their own names, as far as they are known before they tell."""
    own = socket.gethostname()
    if plan.hosts is None:
        elsewhere = chosen_elsewhere(plan.job.settings, None, plan.environ)
        return {} if elsewhere else dict.fromkeys(range(plan.job.np), own)
    hosts = _placed_hosts(plan)
    return {rank: own if is_local(host) else host for rank, host in enumerate(hosts)}


def _placed_hosts(plan: JobPlan) -> list[str]:
    """Return the host of each rank as the hostfile spells it; nothing without hosts."""
    if plan.hosts is None:
        return []
    return [placed.host for placed in plan.launch.placement for _ in range(placed.count)]


def _exit_sentence(process: asyncio.subprocess.Process, watch: Watchdog) -> str:
    elapsed = time.monotonic() - watch.launched
    stage = "before all ranks were ready" if not watch.ready else "before all ranks were through"
    return f"the launcher ended with status {process.returncode} after {elapsed:.1f} s, {stage}"
