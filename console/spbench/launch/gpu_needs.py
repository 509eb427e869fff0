"""GPUs that cases need, and the check before a launch that hosts have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from spbench.errors import MissingError
from spbench.launch.gpus.facts import HostGpus, explain_unusable
from spbench.launch.hosts.hosts import Hosts
from spbench.launch.hosts.names import fold, is_local
from spbench.launch.jobs import Job, Launch, may_choose_hosts
from spbench.launch.launcher import get_traits
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.survey.facts import HostFacts
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.launch.survey.survey import survey_hosts
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.host_facts import VISIBLE_DEVICES, read_cards
from spbench_core.layout.transports import TRANSPORT_DEVICES
from spbench_core.number_text import format_quantity

_HERE = "this machine"
_MAX_CASES = 3
_MAX_REASONS = 3
_PEER = "peer"
_GPU_PATHS = ("to_device", "to_host", _PEER)
"""The paths of memory.copy that have a GPU at an end."""
_ELSEWHERE = "leave them out with -k or --case, or name hosts that have GPUs with --hostfile"


@dataclass(slots=True)
class _Rejection:
    """Names of cases that cannot run for one reason, and the hosts where it holds.

    ``cases`` and ``hosts`` are ordered sets.
    """

    remedy: str
    cases: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)


def needs_gpu(case: Case) -> bool:
    """Whether a case can run only on GPUs."""
    params = case.params
    has_gpu_transport = TRANSPORT_DEVICES.get(params.get("transport", "")) == "cuda"
    copies_gpu_memory = params.get("path") in _GPU_PATHS
    return (
        params.get("device") == "cuda"
        or has_gpu_transport
        or copies_gpu_memory
        or needs_exclusive_gpu(case)
    )


def may_use_gpu(case: Case) -> bool:
    """Whether a case runs on a GPU of this machine, if it has one."""
    return needs_gpu(case) or (case.params.get("device") == "auto" and bool(read_cards()))


def needs_exclusive_gpu(case: Case) -> bool:
    """Whether each rank of a case needs its own GPU, because NCCL does not share one.

    Benchmarks name the parameter transport, backend, algorithm or path. Its value is ``nccl``.
    """
    return any(
        value == "nccl" or (isinstance(value, list | tuple) and "nccl" in value)
        for value in case.params.values()
    )


async def check_gpus(
    jobs: Iterable[tuple[Job, Launch, Hosts | None]],
    env: Mapping[str, str],
    progress: Progress = ignore_progress,
    host_facts: Mapping[str, Mapping[str, HostFacts]] | None = None,
) -> None:
    """Reject cases that need GPUs if their hosts have none or too few.

    Other hosts are queried only if a case needs GPUs. Hosts that are unknown before the launch, or
    that do not answer, are left to their ranks. So are jobs with arguments for the launcher, which
    may name hosts, distribute ranks and set CUDA_VISIBLE_DEVICES.

    Args:
        jobs: Each with its launch and its hosts.
        env: The console's environment.
        progress: Takes a line on the progress while hosts are queried.
        host_facts: Answers that hosts have already given, by `survey_key` of the settings. These
            hosts are not queried again.

    Raises:
        MissingError: The message lists the cases, the hosts and the reasons.
    """
    unchecked_launches = [
        (job, launch)
        for job, launch, hosts in jobs
        if any(map(needs_gpu, job.cases))
        and not get_traits(launch.launcher).places_ranks
        and not job.settings.args
        and not may_choose_hosts(job.settings, hosts, env)
    ]
    rejections: dict[str, _Rejection] = {}
    facts_by_host_by_key: dict[str, Mapping[str, HostFacts]] = dict(host_facts or {})
    for job, launch in unchecked_launches:
        settings_key = survey_key(job.settings)
        if settings_key not in facts_by_host_by_key:
            launches_with_key = [
                (other_job, other_launch)
                for other_job, other_launch in unchecked_launches
                if survey_key(other_job.settings) == settings_key
            ]
            facts_by_host_by_key[settings_key] = await _survey_remote(
                launches_with_key, job.settings, env, progress
            )
        for host, ranks in _group_ranks(job, launch).items():
            facts = (
                launch.library if _is_here(host) else facts_by_host_by_key[settings_key].get(host)
            )
            if facts is None or facts.gpus is None:
                continue
            gpus = _drop_visible_devices(facts.gpus, host, job.settings, env)
            for case in filter(needs_gpu, job.cases):
                exclusive = not job.settings.oversubscribe
                for reason, remedy in _find_reasons_and_remedies(
                    case, facts, gpus, ranks, exclusive=exclusive
                ):
                    rejection = rejections.setdefault(reason, _Rejection(remedy))
                    rejection.cases[case.name] = None
                    rejection.hosts[host] = None
    if rejections:
        raise MissingError(_format_rejections(rejections))


def survey_key(settings: LaunchSettings) -> str:
    """Return a key that is equal for settings with which a host gives the same answer."""
    return settings.model_dump_json(include={"python", "setup", "container", "env"})


async def _survey_remote(
    jobs: Sequence[tuple[Job, Launch]],
    settings: LaunchSettings,
    env: Mapping[str, str],
    progress: Progress,
) -> dict[str, HostFacts]:
    """Query the hosts of jobs, except this machine, and return the answers by host."""
    hosts = {host: None for job, launch in jobs for host in _group_ranks(job, launch)}
    remote_hosts = [host for host in hosts if not _is_here(host)]
    if not remote_hosts:
        return {}
    answers = [facts async for facts in survey_hosts(remote_hosts, settings, env, progress)]
    return {facts.host: facts for facts in answers if facts.cores is not None}


def _is_here(host: str) -> bool:
    return host == _HERE or is_local(host)


def _group_ranks(job: Job, launch: Launch) -> dict[str, list[int]]:
    """Return the ranks of a job by host."""
    if not launch.placement:
        return {_HERE: list(range(job.np))}
    ranks_by_host: dict[str, list[int]] = {}
    following_ranks = iter(range(job.np))
    for block in launch.placement:  # a host with two adapters has two blocks
        ranks_by_host.setdefault(block.host, []).extend(islice(following_ranks, block.count))
    return ranks_by_host


def _drop_visible_devices(
    gpus: HostGpus, host: str, settings: LaunchSettings, env: Mapping[str, str]
) -> HostGpus:
    """Drop CUDA_VISIBLE_DEVICES of a host's answer if ranks may see another value.

    A setup line, or a wrapper of the container or interpreter, may give each rank its own GPU.
    The single process that answered the survey then sees none, or always the first.
    """
    devices_in_ranks = settings.env.get(VISIBLE_DEVICES, env.get(VISIBLE_DEVICES))
    unchanged = gpus.visible == devices_in_ranks or (
        devices_in_ranks is None and not _is_here(host)
    )
    if unchanged and not settings.setup and not settings.container:
        return gpus
    return replace(gpus, visible=None)


def _find_reasons_and_remedies(
    case: Case,
    host_facts: MpiLibrary | HostFacts,
    gpus: HostGpus,
    ranks: Iterable[int],
    *,
    exclusive: bool,
) -> Iterator[tuple[str, str]]:
    """Yield why these ranks of a case cannot run on their host, with remedies.

    If ``exclusive``, each rank needs its own GPU; otherwise only ranks that use NCCL do.
    """
    params = dict(case.params)
    # parameter servers use no GPU
    gpu_ranks = sum("server" not in case.entry.place(params, rank) for rank in ranks)
    if not gpu_ranks:
        return
    problem = explain_unusable(gpus, host_facts.torch, host_facts.torch_cuda)
    if problem:
        yield problem, f"spbench doctor says how to fix it; or {_ELSEWHERE}"
        return
    if gpus.usable is None:
        return

    device_ids = params.get("device_ids")
    available_gpus = min(gpus.usable, len(device_ids or range(gpus.usable)))
    if gpu_ranks > available_gpus and needs_exclusive_gpu(case):
        origin = " of device_ids" if available_gpus < gpus.usable else ""
        shared_text = f"{format_quantity(available_gpus, 'GPU')}{origin}"
        reason = f"{gpu_ranks} ranks share {shared_text}, and nccl needs one for each rank"
        yield reason, f"start fewer ranks a host (ranks_per_host), or {_ELSEWHERE}"
    elif gpu_ranks > available_gpus and exclusive:
        reason = (
            f"{gpu_ranks} devices are wanted, one for each rank, and "
            f"{format_quantity(available_gpus, 'GPU')} available"
        )
        yield reason, f"plan for fewer devices, set launch.oversubscribe to true, or {_ELSEWHERE}"

    visible_text = format_quantity(gpus.usable, "GPU")
    param = "device_ids" if device_ids else "gpus"
    gpu_indices = params.get(param) or ()
    if (param == "device_ids" or len(gpu_indices) > 1) and max(gpu_indices) >= gpus.usable:
        reason = f"{param} names GPU {max(gpu_indices)}, and a rank sees {visible_text}"
        yield reason, "name GPUs from 0 up that are there"
    if params.get("path") == _PEER and gpus.usable < 2:
        reason = f"path peer needs two GPUs, and a rank sees {visible_text}"
        yield reason, f"take path device, or {_ELSEWHERE}"


def _format_rejections(rejections: Mapping[str, _Rejection]) -> str:
    messages = []
    for reason, rejection in islice(rejections.items(), _MAX_REASONS):
        case_names = list(rejection.cases)
        more_text = (
            f" and {len(case_names) - _MAX_CASES} more" if len(case_names) > _MAX_CASES else ""
        )
        hosts_text = _HERE if _HERE in rejection.hosts else fold(tuple(rejection.hosts))
        cases_text = f"{', '.join(case_names[:_MAX_CASES])}{more_text}"
        messages.append(f"{cases_text} on {hosts_text}: {reason} ({rejection.remedy})")
    hidden_reasons = len(rejections) - _MAX_REASONS
    others_text = f"; nor others ({hidden_reasons} reasons)" if hidden_reasons > 0 else ""
    return f"cannot run {'; nor '.join(messages)}{others_text}"
