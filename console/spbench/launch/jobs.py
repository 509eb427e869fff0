"""Jobs: cases that share a launch, and the complete command of each job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench.errors import MissingError, UsageError
from spbench.launch.allocator import preload_allocator
from spbench.launch.detect import (
    InstalledLauncher,
    detect_mpi_library,
    find_assumed_launcher,
    find_launcher,
    load_traits,
    parse_assumed_library,
)
from spbench.launch.hosts.hostfiles import HostsFinder, write_hostfile
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.launcher import (
    ALLOCATIONS,
    Command,
    JobSpec,
    Launcher,
    RankBlock,
    count_ranks_by_host,
    get_traits,
    names_hosts,
)
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.placement import count_cores, count_slots, is_oversubscribed, place_ranks
from spbench.launch.program import PROGRAM_WORKER, WORKER, build_worker_argv, find_interpreter
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.events.rank_events import ENV_DEVICE, ENV_FAN_IN, ENV_KERNEL_LOADING

MAX_DIRECT_RANKS = 1024
"""Ranks of a job above which ``fan_in: auto`` starts a relay on each node."""
_PINNING = ("MV2_ENABLE_AFFINITY", "MVP_ENABLE_AFFINITY", "I_MPI_PIN")
_OFF = ("0", "off", "no", "disable")


@dataclass(frozen=True, slots=True)
class Job:
    """One MPI launch: cases with equal settings and ranks, one after another.

    Attributes:
        deaths: 1 if this job repeats one that died before any case had started, otherwise 0.
        repeat: The repeat of each case that it runs. None means all, one after another.
        host: Its host, if its cases have a job on each host. None means one job for all hosts.
        first_rank: The number of its rank 0 among the ranks of its cases.
    """

    number: int
    cases: tuple[Case, ...]
    np: int
    settings: LaunchSettings
    deaths: int = 0
    repeat: int | None = None
    host: str | None = None
    first_rank: int = 0

    @property
    def max_concurrent_hosts(self) -> int:
        """The largest number of hosts on which its cases run at once."""
        return min(case.at_once for case in self.cases)

    @property
    def case_repeats(self) -> list[tuple[Case, int]]:
        """The cases and repeats that it runs, in order."""
        if self.repeat is not None:
            return [(case, self.repeat) for case in self.cases]
        return [(case, repeat) for case in self.cases for repeat in range(case.repeat)]

    @property
    def starts_program(self) -> bool:
        """Whether a program runs instead of the rank. The job then has a single case."""
        return any(case.entry.starts_program for case in self.cases)

    @property
    def worker(self) -> tuple[str, ...]:
        """The interpreter's arguments in each rank."""
        return PROGRAM_WORKER if self.starts_program else WORKER


@dataclass(frozen=True, slots=True)
class Launch:
    """A job ready to start: ``spec`` for any launcher, ``command`` for its own."""

    installed: InstalledLauncher
    library: MpiLibrary
    spec: JobSpec
    command: Command
    hostfile_text: str | None

    @property
    def launcher(self) -> Launcher:
        """The launcher module's object."""
        return self.installed.launcher

    @property
    def version(self) -> str:
        """The launcher's program and version, one line."""
        return self.installed.version

    @property
    def requested_placement(self) -> dict[str, Any]:
        """The requested binding and hosts, for comparison with the actual ones.

        ``undone_by`` is a variable that turns the launcher's binding off, ``variables`` are passed
        through the environment, and ``shown_by`` makes the launcher print its binding.
        """
        requested = self.spec.requested_placement | {"shown_by": self.launcher.shows_binding}
        if get_traits(self.launcher).places_ranks and self.spec.settings.bind == "auto":
            requested["bind"] = None  # the cluster's own policy decides, which is unknown here
        env = {**self.command.env, **self.spec.rank_env}
        disabling_variables = (f"{name}={env[name]}" for name in _PINNING if env.get(name) in _OFF)
        return requested | {
            "undone_by": next(disabling_variables, None),
            "variables": [*self.spec.hidden_env],
        }

    @property
    def placement(self) -> tuple[RankBlock, ...]:
        """Ranks in order, host by host; empty if the launcher places them."""
        return self.spec.placement


def uses_relays(settings: LaunchSettings, np: int, placement: Sequence[RankBlock]) -> bool:
    """Whether a relay on each node carries the lines of its ranks to the console.

    With one rank per node a relay gains nothing. If the launcher places the ranks, the nodes are
    unknown.
    """
    if settings.fan_in != "auto":
        return settings.fan_in == "node"
    has_one_rank_per_node = bool(placement) and np == len(count_ranks_by_host(placement))
    return np > MAX_DIRECT_RANKS and not has_one_rank_per_node


def count_connections(settings: LaunchSettings, np: int, placement: Sequence[RankBlock]) -> int:
    """Return the largest number of connections that a job opens to the console."""
    by_node = bool(placement) and uses_relays(settings, np, placement)
    return len(count_ranks_by_host(placement)) if by_node else np


def group_cases(cases: Iterable[Case], find_hosts: HostsFinder) -> tuple[Job, ...]:
    """Group cases into jobs, in the order of each job's first case."""
    cases_by_group: dict[tuple[str, str, _Share], list[Case]] = {}
    for case in cases:
        program_id = case.id if case.entry.starts_program else ""
        for share in _split_over_hosts(case, find_hosts(case.launch)):
            group = (case.launch.model_dump_json(), program_id, share)
            cases_by_group.setdefault(group, []).append(case)
    return tuple(
        Job(
            number,
            tuple(grouped_cases),
            share.np,
            grouped_cases[0].launch,
            host=share.host,
            first_rank=share.first_rank,
        )
        for number, ((_, _, share), grouped_cases) in enumerate(cases_by_group.items(), 1)
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """The ranks of a case that belong to one job: all, or those of one host."""

    np: int
    host: str | None = None
    first_rank: int = 0


def _split_over_hosts(case: Case, hosts: Hosts | None) -> Iterator[_Share]:
    if not case.at_once or hosts is None:
        yield _Share(case.np or _count_all_slots(case, hosts))
        return
    first_rank = 0
    for name in hosts.names:
        np = case.np or _count_all_slots(case, hosts.select(name))
        yield _Share(np, name, first_rank)
        first_rank += np


def select_cases(jobs: Iterable[Job], ids: Collection[str]) -> tuple[Job, ...]:
    """Return the jobs with only these cases, without jobs that have none of them."""
    jobs_and_cases = ((job, tuple(case for case in job.cases if case.id in ids)) for job in jobs)
    return tuple(replace(job, cases=cases) for job, cases in jobs_and_cases if cases)


def interleave_repeats(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield one job per repeat, round robin, so that drift affects all cases equally."""
    repeats = max((case.repeat for job in jobs for case in job.cases), default=0)
    for repeat in range(repeats):
        for job in jobs:
            if cases := tuple(case for case in job.cases if case.repeat > repeat):
                yield replace(job, cases=cases, repeat=repeat)


def split_program_repeats(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield the jobs in order, but one job per repeat of a program."""
    for job in jobs:
        if job.starts_program and job.repeat is None:
            yield from (replace(job, repeat=repeat) for repeat in range(job.cases[0].repeat))
        else:
            yield job


def _count_all_slots(case: Case, hosts: Hosts | None) -> int:
    slots = count_cores() if hosts is None else count_slots(hosts, case.launch.ranks_per_host)
    return max(case.ranks.minimum, slots)


def prepare_launch(
    job: Job,
    hosts: Hosts | None,
    home: Path,
    private_env: dict[str, str],
    env: Mapping[str, str],
    assume: str | None = None,
) -> Launch:
    """Return the complete command of a job, and write its hostfile under ``home``.

    Equal hostfiles have the same path, so that a printed command is the one that runs.

    Args:
        job: The job.
        hosts: Its hosts; None means this machine, or the hosts that the launcher chooses.
        home: The folder of the runs.
        private_env: spbench's own variables for the ranks.
        env: The console's environment.
        assume: A library such as ``mvapich2-2.3.7`` that need not be installed. Its launch cannot
            be started.

    Raises:
        MissingError: A launcher, the MPI library or slots are missing.
        UsageError: The launcher cannot express a host or a setting.
    """
    settings = job.settings
    _reject_nul(settings)
    placement = place_ranks(hosts, job.np, settings.ranks_per_host)
    _reject_too_few_slots(job, hosts, env)

    if assume is None:
        library = detect_mpi_library(find_interpreter(settings), settings)
        installed = find_launcher(settings, library, env)
    else:
        library = parse_assumed_library(assume)
        installed = find_assumed_launcher(settings, library)
    launcher = installed.launcher

    is_local_job = not _uses_allocation(installed, hosts, env)
    if not job.starts_program:
        settings = preload_allocator(
            settings, launcher.name, placement, env, is_local_job=is_local_job
        )
    hostfile_text = launcher.hostfile(placement)
    hostfile = write_hostfile(home, hostfile_text) if hostfile_text is not None else None
    spec = JobSpec(
        np=job.np,
        placement=placement,
        settings=settings,
        program=build_worker_argv(settings, job.worker),
        private_env=private_env
        | _build_fan_in_environment(job, placement)
        | build_job_environment(job, env),
        oversubscribed=is_local_job and is_oversubscribed(hosts, job.np),
        hostfile=hostfile,
        library=library.name,
    )
    command = launcher.command(installed.executable, spec, env)
    return Launch(installed, library, spec, command, hostfile_text)


def build_job_environment(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the cases of a job need before MPI starts."""
    return _build_device_environment(job) | _build_kernel_loading_environment(job, env)


def _build_device_environment(job: Job) -> dict[str, str]:
    # each rank takes its GPU before MPI starts, and must know by then that a case needs one
    needs_gpu = any(case.params.get("device") == "cuda" for case in job.cases)
    return {ENV_DEVICE: "cuda"} if needs_gpu else {}


def _build_fan_in_environment(job: Job, placement: tuple[RankBlock, ...]) -> dict[str, str]:
    """Make ranks share their node's connection to the console, if relays are used."""
    return {ENV_FAN_IN: "node"} if uses_relays(job.settings, job.np, placement) else {}


def _build_kernel_loading_environment(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """Let CUDA load all kernels at its start if stages use NCCL.

    A user's variable takes precedence.
    """
    uses_nccl = any(case.params.get("backend") == "nccl" for case in job.cases)
    is_set = ENV_KERNEL_LOADING in env or ENV_KERNEL_LOADING in job.settings.env
    return {ENV_KERNEL_LOADING: "EAGER"} if uses_nccl and not is_set else {}


def _uses_allocation(
    installed: InstalledLauncher, hosts: Hosts | None, env: Mapping[str, str]
) -> bool:
    """Whether ranks run on the hosts of an allocation and not on this machine."""
    in_allocation = hosts is None and any(name in env for name in ALLOCATIONS)
    return get_traits(installed.launcher).places_ranks or in_allocation


def may_choose_hosts(settings: LaunchSettings, hosts: Hosts | None, env: Mapping[str, str]) -> bool:
    """Whether the launcher may choose hosts, which are then unknown beforehand."""
    takes_allocation = load_traits(settings.launcher).places_ranks
    return hosts is None and (takes_allocation or names_hosts(env))


def _reject_too_few_slots(job: Job, hosts: Hosts | None, env: Mapping[str, str]) -> None:
    ranks_per_host = job.settings.ranks_per_host
    is_local_job = hosts is None and not may_choose_hosts(job.settings, hosts, env)
    if is_local_job and ranks_per_host is not None and job.np > ranks_per_host:
        raise MissingError(
            f"{job.np} ranks do not fit on this machine at ranks_per_host {ranks_per_host}: raise "
            "it, or name hosts with --hostfile"
        )


def _reject_nul(settings: LaunchSettings) -> None:
    args = (*settings.env.values(), *settings.args, *build_worker_argv(settings))
    if any("\0" in arg for arg in args):
        raise UsageError("launch: a value has a NUL character, which no command line can carry")
