"""The run of one job: its launcher, its ranks' events, its deadlines, its end."""

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
from spbench.engine.connections.collector import Collector
from spbench.engine.connections.endpoint import resolve_endpoint
from spbench.engine.connections.tunnel import Tunnels
from spbench.engine.faults.cause import Evidence, find_cause, is_doubtful, is_settled
from spbench.engine.faults.fault import Fault
from spbench.engine.faults.launcher_output import extract_rank_stderr, read_output
from spbench.engine.faults.lost_hosts import names_unknown_host
from spbench.engine.job_listener import JobListener
from spbench.engine.recorder import Recorder
from spbench.engine.watchdog import Watchdog
from spbench.launch.choice import DEFAULT_CHOICE, LaunchChoice
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import is_local
from spbench.launch.jobs import Job, Launch, may_choose_hosts
from spbench.launch.load import describe_busy_host
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.launch.survey.reach import find_hosts_lacking, read_ssh_names
from spbench.record.machine.environment import select_variables
from spbench.record.runs.folder import RunFolder, find_working_folder
from spbench_core.credentials import hide_credentials, select_secrets
from spbench_core.events import rank_events
from spbench_core.events.statuses import CaseStatus

CHECK_INTERVAL = 0.1
"""Seconds between two checks of the deadlines."""
DRAIN_TIMEOUT = 1.5
"""Seconds that events may still arrive after the launcher has ended."""
EVIDENCE_TIMEOUT = 2.0
"""Seconds in which launcher and ranks may still report the cause of a tentative fault."""
ANSWER_TIMEOUT = 1.0
"""Seconds that ranks have to report their position in the program."""
KILL_DELAY = 5.0
"""Seconds between SIGTERM and SIGKILL: mpirun_rsh ends ranks up to 3 s after itself."""
_MAX_HOSTS = 4


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job, and all that its start needs.

    ``launch`` is complete except for the values of the console's variables for ranks.
    """

    job: Job
    hosts: Hosts | None
    launch: Launch
    environ: Mapping[str, str]
    launch_choice: LaunchChoice = DEFAULT_CHOICE


class JobRun:
    """The execution of one job: start it, wait for its end or for a fault, and end it."""

    def __init__(
        self,
        plan: JobPlan,
        folder: RunFolder,
        recorder: Recorder,
        progress: Progress = ignore_progress,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._job = plan.job
        self._folder = folder
        self._recorder = recorder
        self._kill_now = asyncio.Event()
        self._token = secrets.token_hex(16)
        case_repeats = [(case.id, repeat) for case, repeat in self._job.case_repeats]
        self._watchdog = Watchdog(
            np=self._job.np,
            case_repeats=case_repeats,
            start_timeout=self._job.settings.start_timeout,
            case_timeouts={case.id: case.launch.timeout for case in self._job.cases},
            launched=time.monotonic(),
            silence_timeout=self._job.settings.silence_timeout,
            describe_load=describe_busy_host,
            hosts=_find_expected_hosts(plan),
            first_rank=plan.job.first_rank,
        )
        self._listener = JobListener(self._job, recorder, self._watchdog)
        silence = self._job.settings.silence_timeout
        self._collector = Collector(
            self._token, self._listener, self._job.np, silence_timeout=silence
        )
        self._tunnels = Tunnels()
        self._aliases: dict[str, str] = {}
        self._segments: set[Path] = set()

    async def run(self) -> Fault | None:
        """Run the job to its end and return the fault that ended it, if any.

        Raises:
            SpbenchError: The launcher cannot be started, or the run folder cannot be written.
        """
        with processes.create_launcher_folder(self._plan.launch.command) as folder_variables:
            process = None
            try:
                process = await self._start(folder_variables)
            finally:
                if process is None:
                    await self._collector.close()
                    await self._tunnels.close()
            if process is None:
                return self._watchdog.fault
            try:
                await self._supervise(process)
                await self._explain(process)
            finally:
                # The order matters: events of ranks that have ended are read before the collector
                # closes, since a rank ends when its connection does. The owner of shared memory is
                # visible only while its processes live.
                await self._drain_events(process)
                await self._collector.close()
                await self._tunnels.close()
                await self._note_segments()
                await processes.end_processes(process, self._folder.id, KILL_DELAY, self._kill_now)
                await asyncio.to_thread(processes.remove_unused_segments, self._segments)
        if self._listener.failure is not None:
            raise self._listener.failure
        fault = self._watchdog.fault
        self._recorder.record(
            "job_end",
            job=self._job.number,
            reason=fault.message if fault else None,
            status=process.returncode,
            strangers=self._listener.num_rejected,
        )
        return fault

    @property
    def current_case(self) -> str | None:
        """The id of the first case that has not ended; None if all have."""
        current = self._watchdog.current
        return current[0] if current else None

    def cancel(self, message: str, *, kill_now: bool = False) -> None:
        """End the job and cancel its running case. ``kill_now`` leaves ranks no time."""
        self._watchdog.cancel(message)
        if kill_now:
            self._kill_now.set()
        self._listener.wake.set()

    async def _start(
        self, folder_variables: Mapping[str, str]
    ) -> asyncio.subprocess.Process | None:
        """Start the launcher with these variables; None if the job was cancelled before."""
        plan = self._plan
        launch = self._plan.launch
        host_names = plan.hosts.names if plan.hosts else ()
        has_unknown_hosts = may_choose_hosts(plan.job.settings, plan.hosts, plan.environ)
        tunnel = plan.job.settings.tunnel
        endpoint = resolve_endpoint(
            host_names, plan.launch_choice, tunnel, has_unknown_hosts=has_unknown_hosts
        )
        port = await self._collector.listen(endpoint.bind_address, endpoint.ports)
        await self._open_tunnels(endpoint.tunnel_hosts, port)
        if self._watchdog.fault is not None:
            return None

        private_env = {
            rank_events.ENV_COLLECTOR: ",".join(
                f"{host}:{port}" for host in endpoint.advertised_addresses
            ),
            rank_events.ENV_TOKEN: self._token,
            rank_events.ENV_RUN: self._folder.id,
        }
        command = replace(launch.command, env={**launch.command.env, **private_env})
        job_folder = self._folder.create_job_folder(self._job.number)
        env = select_variables(command.env, launch.spec.hidden_env)
        argv = hide_credentials(command.argv, select_secrets(launch.spec.rank_env))
        launcher = launch.launcher.name
        library = launch.library.version_text
        job_path = f"jobs/{self._job.number}"
        self._folder.write_json(
            f"{job_path}/argv.json", {"argv": argv, "cwd": find_working_folder()}
        )
        self._folder.write_json(f"{job_path}/env.json", env)
        if launch.hostfile_text is not None:
            self._folder.write_text(f"{job_path}/hostfile", launch.hostfile_text)
        self._recorder.record(
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
            asked=launch.requested_placement,
            **({} if self._job.repeat is None else {"repeat": self._job.repeat}),
            **({} if self._job.host is None else {"first_rank": self._job.first_rank}),
        )
        programs = f"{launcher} ({launch.version}) and {library}"
        self._watchdog.on_launch(programs, library, time.monotonic())
        # The variables are not recorded, because the folder has another name in each job.
        command = replace(command, env={**command.env, **folder_variables})
        return await processes.start_launcher(command, job_folder, self._folder.path)

    async def _open_tunnels(self, hosts: Sequence[str], port: int) -> None:
        """Open the tunnels, unless the job is cancelled before."""
        opening = asyncio.create_task(self._tunnels.open(hosts, port, self._progress))
        waking = asyncio.create_task(self._listener.wake.wait())
        await asyncio.wait({opening, waking}, return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        if opening.done():
            opening.result()
        opening.cancel()

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        """Wait until all ranks are done, or there is a fault."""
        exited = asyncio.create_task(process.wait())
        exited.add_done_callback(lambda _: self._listener.wake.set())
        exit_time = 0.0
        # shared memory in the folder of the launcher is removed with it, and need not be found
        skip_segments = self._plan.launch.library.keeps_memory_in_folders
        while not self._watchdog.done and not self._watchdog.check_deadlines(time.monotonic()):
            if exited.done():
                exit_time = exit_time or time.monotonic()
                # events that ranks had sent may arrive after the launcher's exit
                if time.monotonic() - exit_time > DRAIN_TIMEOUT:
                    self._watchdog.fail(
                        _format_launcher_exit(process, self._watchdog), tentative=True
                    )
            self._listener.wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._listener.wake.wait(), CHECK_INTERVAL)
            if self._watchdog.ready and not skip_segments:
                skip_segments = True
                await self._note_segments()
        exited.cancel()

    async def _note_segments(self) -> None:
        """Find the shared memory of the ranks, which is impossible after their end."""
        self._segments |= await asyncio.to_thread(processes.find_segments, self._folder.id)

    async def _explain(self, process: asyncio.subprocess.Process) -> None:
        """Find the cause of a fault from the reports of ranks and launcher."""
        fault = self._watchdog.fault
        if fault is not None and fault.status == CaseStatus.TIMEOUT:
            await self._locate_ranks(fault)
        elif fault is not None and fault.status == CaseStatus.ERROR:
            if self._watchdog.tentative:
                await self._await_evidence(process)
            evidence = self._collect_evidence(process)
            if names_unknown_host(evidence.launcher_report.lost, evidence.host_names):
                self._aliases = await read_ssh_names(_list_rank_hosts(self._plan))
                evidence = self._collect_evidence(process)
            explained = await self._add_host_problems(self._choose_fault(fault, evidence))
            self._watchdog.explain(explained)
            self._listener.record_lost(explained)
        self._listener.closed = True

    def _choose_fault(self, fault: Fault, evidence: Evidence) -> Fault:
        cause = find_cause(evidence) if self._watchdog.tentative else None
        if cause is not None or fault.traceback is not None:
            return cause or fault
        details = evidence.stderr_text or evidence.launcher_report.message
        return replace(fault, message=f"{fault.message}: {details}") if details else fault

    async def _add_host_problems(self, fault: Fault) -> Fault:
        """Add the hosts' problems if no rank has connected and the launcher hides them."""
        launch = self._plan.launch
        helper = launch.launcher.helper
        if fault.rank is not None or self._watchdog.connected_hosts or helper is None:
            return fault
        hosts = [block.host for block in launch.placement]
        program = launch.installed.executable.with_name(helper)
        reason_by_host = await find_hosts_lacking(hosts, find_working_folder(), program)
        shown_reasons = list(reason_by_host.items())[:_MAX_HOSTS]
        problems = "; ".join(f"host {host}: {reason}" for host, reason in shown_reasons)
        return replace(fault, message=f"{problems}; {fault.message}") if problems else fault

    async def _await_evidence(self, process: asyncio.subprocess.Process) -> None:
        """Wait for further evidence, because the launcher's report takes time."""
        deadline = time.monotonic() + EVIDENCE_TIMEOUT
        while time.monotonic() < deadline and not self._kill_now.is_set():
            evidence = self._collect_evidence(process)
            ended = process.returncode is not None
            if is_settled(evidence):
                return
            # in this time, events that ranks had sent before the launcher's end are read
            await asyncio.sleep(CHECK_INTERVAL)
            if ended and not is_doubtful(evidence):
                return

    def _collect_evidence(self, process: asyncio.subprocess.Process) -> Evidence:
        watch = self._watchdog
        launcher = self._plan.launch.launcher
        output = read_output(self._folder.path / "jobs" / str(self._job.number))
        now = time.monotonic()
        return Evidence(
            observations=watch.observations,
            launcher_report=launcher.parse_output(output),
            describe_rank=lambda rank, host: watch.describe_rank(rank, now, host),
            unconnected=watch.unconnected,
            planned_hosts=watch.expected_hosts,
            host_names=self._collect_host_names(),
            quiet=watch.find_quiet(now),
            launcher=launcher.name,
            host=socket.gethostname(),
            status=process.returncode,
            protocol_fault=watch.protocol_fault,
            stderr_text=extract_rank_stderr(output),
        )

    def _collect_host_names(self) -> dict[int, set[str]]:
        """Return the names of each rank's host: its own, the placement's and ssh's."""
        names_by_rank = {rank: {host} for rank, host in self._watchdog.hosts.items()}
        for rank, host in enumerate(_list_rank_hosts(self._plan)):
            names_by_rank.setdefault(rank, set()).update((host, self._aliases.get(host, host)))
        return names_by_rank

    async def _locate_ranks(self, fault: Fault) -> None:
        """Ask ranks for their position in the program, and name those at an unusual one."""
        for connection in self._listener.ranks.values():
            connection.reply(reply="where")
        deadline = time.monotonic() + ANSWER_TIMEOUT
        positions = self._listener.positions
        ranks = self._listener.ranks
        while len(positions) < len(ranks) and time.monotonic() < deadline:
            await asyncio.sleep(CHECK_INTERVAL / 2)
        self._watchdog.explain(self._watchdog.add_locations(fault, positions))

    async def _drain_events(self, process: asyncio.subprocess.Process) -> None:
        """Let the launcher exit, and read the events that ended ranks had sent."""
        fault = self._watchdog.fault
        if fault is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), KILL_DELAY)
        await asyncio.sleep(CHECK_INTERVAL / 2)
        deadline = time.monotonic() + DRAIN_TIMEOUT
        while process.returncode is not None and self._collector.ranks:
            if time.monotonic() > deadline or self._kill_now.is_set():
                return
            await asyncio.sleep(CHECK_INTERVAL / 10)


def _find_expected_hosts(plan: JobPlan) -> dict[int, str]:
    """Return each rank's host by its own name, as far as known before the launch."""
    hostname = socket.gethostname()
    if plan.hosts is None:
        is_unknown = may_choose_hosts(plan.job.settings, None, plan.environ)
        return {} if is_unknown else dict.fromkeys(range(plan.job.np), hostname)
    hosts = _list_rank_hosts(plan)
    return {rank: hostname if is_local(host) else host for rank, host in enumerate(hosts)}


def _list_rank_hosts(plan: JobPlan) -> list[str]:
    """Return the host of each rank with the hostfile's spelling; empty without hosts."""
    if plan.hosts is None:
        return []
    return [block.host for block in plan.launch.placement for _ in range(block.count)]


def _format_launcher_exit(process: asyncio.subprocess.Process, watch: Watchdog) -> str:
    elapsed = time.monotonic() - watch.launched
    stage = "before all ranks were ready" if not watch.ready else "before all ranks were through"
    return f"the launcher ended with status {process.returncode} after {elapsed:.1f} s, {stage}"
