"""Jobs: cases that share a launch, and the complete command of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spbench.errors import FailedRunError, MissingError, UsageError
from spbench.launch.allocator import with_allocator
from spbench.launch.assumed import assumed_launcher, assumed_library
from spbench.launch.detect import Found, find_launcher, mpi_library, traits_named
from spbench.launch.fan_in import relays
from spbench.launch.hosts.hosts import Hosts, read_hostfile
from spbench.launch.launcher import (
    ALLOCATIONS,
    Command,
    JobSpec,
    Launcher,
    Placed,
    names_hosts,
    traits_of,
)
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.placement import available_slots, cores, oversubscribed, place
from spbench.launch.program import PROGRAM_WORKER, WORKER, interpreter, worker_program
from spbench.safe_files import make_folders, replace_file
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.events.rank_events import ENV_DEVICE, ENV_FAN_IN, ENV_KERNEL_LOADING

_PINNING = ("MV2_ENABLE_AFFINITY", "MVP_ENABLE_AFFINITY", "I_MPI_PIN")
_OFF = ("0", "off", "no", "disable")

HostsOf = Callable[[LaunchSettings], Hosts | None]
"""The hosts of a job with these settings; None: this machine."""


@dataclass(frozen=True, slots=True)
class Job:
    """One MPI launch: cases with equal settings and ranks, one after another.

    Attributes:
        deaths: 1 where the job before it, of which this one is what was left, had died before any
            case had started; else 0.
        repeat: The repeat of each case that it runs; None: all of them, one after another.
        host: The host that it runs on, of cases that have a job on each; None: all hosts are one
            job's.
        first_rank: The number that its rank 0 has among the ranks of its cases.
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
    def at_once(self) -> int:
        """On how many hosts at most its cases run at once."""
        return min(case.at_once for case in self.cases)

    @property
    def items(self) -> list[tuple[Case, int]]:
        """The cases and repeats that it runs, in their order."""
        if self.repeat is not None:
            return [(case, self.repeat) for case in self.cases]
        return [(case, repeat) for case in self.cases for repeat in range(case.repeat)]

    @property
    def starts_program(self) -> bool:
        """Whether a program takes the ranks' place: the job is one case's alone."""
        return any(case.entry.starts_program for case in self.cases)

    @property
    def worker(self) -> tuple[str, ...]:
        """The interpreter's arguments in each rank."""
        return PROGRAM_WORKER if self.starts_program else WORKER


@dataclass(frozen=True, slots=True)
class Launch:
    """A job, ready to start: ``spec`` in words that no launcher owns, ``command`` in this one's."""

    found: Found
    library: MpiLibrary
    spec: JobSpec
    command: Command
    hostfile_text: str | None

    @property
    def launcher(self) -> Launcher:
        """The launcher module's object."""
        return self.found.launcher

    @property
    def version(self) -> str:
        """The launcher's program and version, one line."""
        return self.found.version

    @property
    def asked(self) -> dict[str, Any]:
        """The places that the job asks for its ranks, what may undo them, and what shows them."""
        asked = self.spec.asked | {"shown_by": self.launcher.shows_binding}
        if traits_of(self.launcher).places_ranks and self.spec.settings.bind == "auto":
            asked["bind"] = None  # the cluster's own policy
        given = {**self.command.env, **self.spec.rank_env}
        off = (f"{name}={given[name]}" for name in _PINNING if given.get(name) in _OFF)
        return asked | {"undone_by": next(off, None), "variables": [*self.spec.hidden_env]}

    @property
    def placement(self) -> tuple[Placed, ...]:
        """Ranks in order, host by host; empty where the launcher places them."""
        return self.spec.placement


def hosts_for(given: Hosts | None, folder: Path, exclude: str | None = None) -> HostsOf:
    """Return how a job's hosts are found.

    ``given`` (from --hostfile or --hosts) wins; else ``hostfile`` of the settings, a path
    relative to ``folder``, the suite's; else None. ``exclude`` is taken off either.
    """
    read: dict[str, Hosts] = {}

    def resolve(settings: LaunchSettings) -> Hosts | None:
        hosts = given
        name = settings.hostfile
        if hosts is None and name is not None:
            if name not in read:
                read[name] = read_hostfile(folder / name)
            hosts = read[name]
        if hosts is None and exclude is not None:
            raise UsageError("--exclude-hosts: there are no hosts; give --hostfile or --hosts")
        return hosts.excluding(exclude) if hosts and exclude is not None else hosts

    return resolve


def group(cases: Iterable[Case], hosts_of: HostsOf) -> tuple[Job, ...]:
    """Return the jobs of the cases, stably, in the order of each job's first case."""
    groups: dict[tuple[str, str, _Share], list[Case]] = {}
    for case in cases:
        alone = case.id if case.entry.starts_program else ""
        for share in _shares(case, hosts_of(case.launch)):
            key = (case.launch.model_dump_json(), alone, share)
            groups.setdefault(key, []).append(case)
    return tuple(
        Job(
            number,
            tuple(members),
            share.np,
            members[0].launch,
            host=share.host,
            first_rank=share.first_rank,
        )
        for number, ((_, _, share), members) in enumerate(groups.items(), 1)
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """The ranks of a case that are one job's: all, or those of one host."""

    np: int
    host: str | None = None
    first_rank: int = 0


def _shares(case: Case, hosts: Hosts | None) -> Iterator[_Share]:
    if not case.at_once or hosts is None:
        yield _Share(case.np or _all_slots(case, hosts))
        return
    first = 0
    for name in hosts.names:
        np = case.np or _all_slots(case, hosts.only(name))
        yield _Share(np, name, first)
        first += np


def only(jobs: Iterable[Job], ids: Collection[str]) -> tuple[Job, ...]:
    """Return the jobs with no other cases than these, without those that have none."""
    kept = ((job, tuple(case for case in job.cases if case.id in ids)) for job in jobs)
    return tuple(replace(job, cases=cases) for job, cases in kept if cases)


def by_turns(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield a launch for each repeat, the jobs by turns: what drifts meets all cases alike."""
    most = max((case.repeat for job in jobs for case in job.cases), default=0)
    for repeat in range(most):
        for job in jobs:
            if cases := tuple(case for case in job.cases if case.repeat > repeat):
                yield replace(job, cases=cases, repeat=repeat)


def each_repeat(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield the jobs in their order, those of programs once for each repeat: one launch a start."""
    for job in jobs:
        if job.starts_program and job.repeat is None:
            yield from (replace(job, repeat=repeat) for repeat in range(job.cases[0].repeat))
        else:
            yield job


def _all_slots(case: Case, hosts: Hosts | None) -> int:
    if hosts is None:
        return max(case.ranks.minimum, cores())
    return max(case.ranks.minimum, available_slots(hosts, case.launch.ranks_per_host))


def prepare(
    job: Job,
    hosts: Hosts | None,
    home: Path,
    private_env: dict[str, str],
    env: Mapping[str, str],
    assume: str | None = None,
) -> Launch:
    """Return the job's whole command, its hostfile written under ``home``.

    Equal hostfiles have one path, so that a printed command is the one that runs. ``assume`` names
    a library that need not be here, as ``mvapich2-2.3.7``: its launch cannot be started.

    Raises:
        MissingError: A launcher, the MPI library or slots are missing.
        UsageError: The launcher cannot express a host or a setting.
    """
    settings = job.settings
    _refuse_nul(settings)
    placement = place(hosts, job.np, settings.ranks_per_host)
    _refuse_too_few(job, hosts, env)
    if assume is None:
        library = mpi_library(interpreter(settings), settings)
        found = find_launcher(settings, library, env)
    else:
        library = assumed_library(assume)
        found = assumed_launcher(settings, library)
    here = not _spread(found, hosts, env)
    if not job.starts_program:
        settings = with_allocator(settings, found.launcher.name, placement, env, here=here)
    text = found.launcher.hostfile(placement)
    path = _write_hostfile(home, text) if text is not None else None
    shared = here and oversubscribed(hosts, job.np)
    spec = JobSpec(
        np=job.np,
        placement=placement,
        settings=settings,
        program=worker_program(settings, job.worker),
        private_env=private_env | _fan_in_environment(job, placement) | job_environment(job, env),
        oversubscribed=shared,
        hostfile=path,
        library=library.name,
    )
    command = found.launcher.command(found.executable, spec, env)
    return Launch(found, library, spec, command, text)


def job_environment(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the cases of a job need before MPI starts."""
    return _device_environment(job) | _kernel_loading_environment(job, env)


def _device_environment(job: Job) -> dict[str, str]:
    """Tell ranks before MPI starts that a case needs a GPU: each takes its own first."""
    needed = any(case.params.get("device") == "cuda" for case in job.cases)
    return {ENV_DEVICE: "cuda"} if needed else {}


def _fan_in_environment(job: Job, placement: tuple[Placed, ...]) -> dict[str, str]:
    """Tell ranks to share their node's connection to the console."""
    return {ENV_FAN_IN: "node"} if relays(job.settings, job.np, placement) else {}


def _kernel_loading_environment(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    """Let CUDA load all kernels at its start where stages talk over NCCL; the user's word wins."""
    needed = any(case.params.get("backend") == "nccl" for case in job.cases)
    given = ENV_KERNEL_LOADING in env or ENV_KERNEL_LOADING in job.settings.env
    return {ENV_KERNEL_LOADING: "EAGER"} if needed and not given else {}


def _spread(found: Found, hosts: Hosts | None, env: Mapping[str, str]) -> bool:
    """Say whether an allocation, and not this machine, takes the ranks."""
    return traits_of(found.launcher).places_ranks or (
        hosts is None and any(name in env for name in ALLOCATIONS)
    )


def chosen_elsewhere(settings: LaunchSettings, hosts: Hosts | None, env: Mapping[str, str]) -> bool:
    """Say whether the launcher itself may choose hosts, which are then not known before."""
    takes_allocation = traits_named(settings.launcher).places_ranks
    return hosts is None and (takes_allocation or names_hosts(env))


def _refuse_too_few(job: Job, hosts: Hosts | None, env: Mapping[str, str]) -> None:
    most = job.settings.ranks_per_host
    here = hosts is None and not chosen_elsewhere(job.settings, hosts, env)
    if here and most is not None and job.np > most:
        raise MissingError(
            f"{job.np} ranks do not fit on this machine at ranks_per_host {most}: raise it, or "
            "name hosts with --hostfile"
        )


def _refuse_nul(settings: LaunchSettings) -> None:
    words = (*settings.env.values(), *settings.args, *worker_program(settings))
    if any("\0" in word for word in words):
        raise UsageError("launch: a value has a NUL character, which no command line can carry")


def _write_hostfile(home: Path, text: str) -> Path:
    data = text.encode()
    path = home.absolute() / "hostfiles" / hashlib.sha256(data).hexdigest()[:12]
    with suppress(OSError):  # another user's may be unreadable: it is replaced
        same_size = path.stat().st_size == len(data)
        if not path.is_symlink() and path.is_file() and same_size and path.read_bytes() == data:
            return path
    try:
        make_folders(path.parent)
        replace_file(path, (text,), 0o644, root=path.parent)
    except OSError as error:
        raise FailedRunError(
            f"cannot write the hostfile {path}: {error.strerror}; choose another --home"
        ) from None
    return path
