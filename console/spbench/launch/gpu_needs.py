"""GPUs that cases need, and the refusal of a run before its launch where they are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from spbench.errors import MissingError
from spbench.launch.gpus.facts import HostGpus, trouble
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold, is_local
from spbench.launch.jobs import Job, Launch, chosen_elsewhere
from spbench.launch.launcher import traits_of
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.progress import Say, nobody
from spbench.launch.survey.survey import survey
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.host_facts import VISIBLE_DEVICES, read_cards
from spbench_core.layout.transports import TRANSPORT_DEVICES
from spbench_core.quantities import format_quantity

_HERE = "this machine"
_CASES = 3
_GROUPS = 3
_PEER = "peer"
_PATHS = ("to_device", "to_host", _PEER)
"""Those of memory.copy that a GPU is on."""
_ELSEWHERE = "leave them out with -k or --case, or name hosts that have GPUs with --hostfile"


@dataclass(slots=True)
class _Refused:
    """Names of cases that cannot run for one reason, and the hosts where it holds."""

    mend: str
    cases: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)


def needs_gpu(case: Case) -> bool:
    """Whether a case can run on GPUs alone."""
    params = case.params
    on_gpu = TRANSPORT_DEVICES.get(params.get("transport", "")) == "cuda"
    copied = params.get("path") in _PATHS
    return params.get("device") == "cuda" or on_gpu or copied or needs_one_each(case)


def may_use_gpu(case: Case) -> bool:
    """Return whether a case takes a GPU if there is one, and this machine has one."""
    return needs_gpu(case) or (case.params.get("device") == "auto" and bool(read_cards()))


def needs_one_each(case: Case) -> bool:
    """Whether each of a case's ranks needs a GPU that no other has: NCCL takes none twice.

    Whatever a benchmark calls it, transport, backend, algorithm or path, its value is ``nccl``.
    """
    return any(
        value == "nccl" or (isinstance(value, list | tuple) and "nccl" in value)
        for value in case.params.values()
    )


async def check_gpus(
    jobs: Iterable[tuple[Job, Launch, Hosts | None]],
    env: Mapping[str, str],
    say: Say = nobody,
    told: Mapping[str, Mapping[str, HostFacts]] | None = None,
) -> None:
    """Refuse cases that need GPUs where they are not there, or not so many.

    Other hosts are asked; nothing is asked for cases that need none. Hosts that are not known
    before the launch, or that do not tell, are left to their ranks; so are jobs with arguments for
    the launcher, which may name hosts, share out ranks and set CUDA_VISIBLE_DEVICES.

    Args:
        jobs: Each with its launch and its hosts.
        env: The console's environment.
        say: Takes a line on how far it is, while hosts are asked.
        told: What hosts have told already, by `asked_alike` of the settings; they are not asked
            again.

    Raises:
        MissingError: One sentence that says what was found where, and which cases need more.
    """
    needing = [
        (job, launch)
        for job, launch, hosts in jobs
        if any(map(needs_gpu, job.cases))
        and not traits_of(launch.launcher).places_ranks
        and not job.settings.args
        and not chosen_elsewhere(job.settings, hosts, env)
    ]
    refused: dict[str, _Refused] = {}
    known: dict[str, Mapping[str, HostFacts]] = dict(told or {})
    for job, launch in needing:
        alike = asked_alike(job.settings)
        if alike not in known:
            others = [other for other in needing if asked_alike(other[0].settings) == alike]
            known[alike] = await _facts(others, job.settings, env, say)
        for host, ranks in _ranks(job, launch).items():
            there = launch.library if _local(host) else known[alike].get(host)
            if there is None or there.gpus is None:
                continue
            gpus = _as_ranks_see(there.gpus, host, job.settings, env)
            for case in filter(needs_gpu, job.cases):
                exclusive = not job.settings.oversubscribe
                for reason, remedy in _refusals(case, there, gpus, ranks, exclusive=exclusive):
                    group = refused.setdefault(reason, _Refused(remedy))
                    group.cases[case.name] = group.hosts[host] = None
    if refused:
        raise MissingError(_sentence(refused))


def asked_alike(settings: LaunchSettings) -> str:
    """Return what is the same for settings with which a host gives the same answer."""
    return settings.model_dump_json(include={"python", "setup", "container", "env"})


async def _facts(
    jobs: Sequence[tuple[Job, Launch]], settings: LaunchSettings, env: Mapping[str, str], say: Say
) -> dict[str, HostFacts]:
    """Ask the hosts of jobs, except this machine; return what those say that answer."""
    hosts = {host: None for job, launch in jobs for host in _ranks(job, launch)}
    others = [host for host in hosts if not _local(host)]
    if not others:
        return {}
    found = {facts.host: facts async for facts in survey(others, settings, env, say)}
    return {host: facts for host, facts in found.items() if facts.cores is not None}


def _local(host: str) -> bool:
    return host == _HERE or is_local(host)


def _ranks(job: Job, launch: Launch) -> dict[str, list[int]]:
    """Return the hosts of a job, each with its ranks."""
    if not launch.placement:
        return {_HERE: list(range(job.np))}
    hosts: dict[str, list[int]] = {}
    left = iter(range(job.np))
    for placed in launch.placement:  # a host with two adapters comes twice
        hosts.setdefault(placed.host, []).extend(islice(left, placed.count))
    return hosts


def _as_ranks_see(
    gpus: HostGpus, host: str, settings: LaunchSettings, env: Mapping[str, str]
) -> HostGpus:
    """Return the GPUs of a host without CUDA_VISIBLE_DEVICES where ranks may have another.

    What gives each rank its own GPU, a setup line, a container's wrapper or one of the interpreter,
    gives the one process that was asked something else: none, or always the first.
    """
    given = settings.env.get(VISIBLE_DEVICES, env.get(VISIBLE_DEVICES))
    untouched = gpus.visible == given or (given is None and not _local(host))
    if untouched and not settings.setup and not settings.container:
        return gpus
    return replace(gpus, visible=None)


def _refusals(
    case: Case,
    host_facts: MpiLibrary | HostFacts,
    gpus: HostGpus,
    ranks: Iterable[int],
    *,
    exclusive: bool,
) -> Iterator[tuple[str, str]]:
    """Yield why these ranks of a case cannot run on their host, and how to fix it.

    If ``exclusive``, each rank needs its own GPU; else only ranks that use NCCL do.
    """
    params = dict(case.params)
    takers = sum("server" not in case.entry.place(params, rank) for rank in ranks)
    if not takers:
        return
    why = trouble(gpus, host_facts.torch, host_facts.torch_cuda)
    if why:
        yield why, f"spbench doctor says how to fix it; or {_ELSEWHERE}"
        return
    if gpus.usable is None:
        return
    few = min(gpus.usable, len(params.get("device_ids") or range(gpus.usable)))
    if needs_one_each(case) and takers > few:
        by = " of device_ids" if few < gpus.usable else ""
        shared = f"{format_quantity(few, 'GPU')}{by}"
        reason = f"{takers} ranks share {shared}, and nccl needs one for each rank"
        yield reason, f"start fewer ranks a host (ranks_per_host), or {_ELSEWHERE}"
    elif exclusive and takers > few:
        available = format_quantity(few, "GPU")
        reason = f"{takers} devices are wanted, one for each rank, and {available} available"
        yield reason, f"plan for fewer devices, set launch.oversubscribe to true, or {_ELSEWHERE}"
    name = "device_ids" if params.get("device_ids") else "gpus"
    named = params.get(name) or ()
    if (name == "device_ids" or len(named) > 1) and max(named) >= gpus.usable:
        reason = (
            f"{name} names GPU {max(named)}, and a rank sees {format_quantity(gpus.usable, 'GPU')}"
        )
        yield reason, "name GPUs from 0 up that are there"
    if params.get("path") == _PEER and gpus.usable < 2:
        reason = f"path peer needs two GPUs, and a rank sees {format_quantity(gpus.usable, 'GPU')}"
        yield reason, f"take path device, or {_ELSEWHERE}"


def _sentence(refused: Mapping[str, _Refused]) -> str:
    told = []
    for reason, group in list(refused.items())[:_GROUPS]:
        cases = list(group.cases)
        more = f" and {len(cases) - _CASES} more" if len(cases) > _CASES else ""
        where = _HERE if _HERE in group.hosts else fold(tuple(group.hosts))
        told.append(f"{', '.join(cases[:_CASES])}{more} on {where}: {reason} ({group.mend})")
    left = len(refused) - _GROUPS
    return f"cannot run {'; nor '.join(told)}" + (f"; nor others ({left} reasons)" * (left > 0))
