"""A host's answer to the survey: its facts and findings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench import __version__
from spbench.launch.doctor import make_missing_torch_finding
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import NO_GPUS, HostGpus, MpiMemory
from spbench.launch.gpus.findings import find_problems
from spbench.launch.load import BUSY_LOAD, describe_high_load
from spbench.launch.mpi_probe import (
    INSTALL,
    IncompleteInterpreterError,
    parse_probe,
    read_library,
    read_mpi_memory,
)
from spbench.launch.survey.command import PROBE_TIMEOUT
from spbench.launch.survey.reach import UNKNOWN_NAME
from spbench_core import host_facts
from spbench_core.number_text import format_quantity

CLOCK_TOLERANCE = 1.0
"""Seconds by which a host's clock may differ from this machine's."""
_OLDEST_PYTHON = (3, 11)
_CHECK_LAUNCH = "check launch.python, launch.setup and launch.container"


@dataclass(frozen=True, slots=True)
class Adapter:
    """One port of an InfiniBand or RoCE adapter, with the kernel's names."""

    name: str
    port: str
    state: str
    rate: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of one host; None and () mean that they were not reported.

    Attributes:
        status: The status of the worst finding.
        reason: The text of the worst finding.
        torch_cuda: The CUDA version of torch's build; empty for a CPU build.
        mpi_memory: Whether MPI accepts memory of a GPU, with the evidence.
        clock_s: Seconds by which its clock is ahead of this machine's.
        memlock: The memory that a process may lock.
        nofile: The number of files that a process may open.
        filesystem: The file system of the working folder.

    Versions are those of the ranks' interpreter.
    """

    host: str
    status: FindingStatus
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    cores: int | None = None
    memory_gib: float | None = None
    free_gib: float | None = None
    load: float | None = None
    gpus: HostGpus = NO_GPUS
    adapters: tuple[Adapter, ...] = ()
    interpreter: str | None = None
    python: str | None = None
    mpi: str | None = None
    mpi4py: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    spbench: str | None = None
    mpi_memory: MpiMemory | None = None
    clock_s: float | None = None
    governor: str | None = None
    memlock: str | None = None
    nofile: int | None = None
    filesystem: str | None = None

    @property
    def devices(self) -> str:
        """``2 x NVIDIA H200``, or ``cpu``."""
        return self.gpus.models or "cpu"

    @property
    def links(self) -> str:
        """``2 x 400 Gb/sec (4X NDR), 1 x DOWN``; empty if there is no adapter."""
        ports = (port.rate if port.state == "ACTIVE" else port.state for port in self.adapters)
        return host_facts.format_name_counts(list(ports))


def group_findings(hosts: Iterable[HostFacts]) -> dict[Finding, list[str]]:
    """Return each finding with its hosts.

    If a finding applies to several hosts, HOST replaces the name in its text.
    """
    hosts_and_findings_by_generic: dict[Finding, list[tuple[str, Finding]]] = {}
    for facts in hosts:
        for finding in facts.findings:
            text = replace_host_name(finding.text, facts.host)
            remedy = replace_host_name(finding.remedy, facts.host)
            generic = replace(finding, text=text, remedy=remedy or None)
            hosts_and_findings_by_generic.setdefault(generic, []).append((facts.host, finding))
    hosts_by_finding: dict[Finding, list[str]] = {}
    for generic, hosts_and_findings in hosts_and_findings_by_generic.items():
        finding = generic if len(hosts_and_findings) > 1 else hosts_and_findings[0][1]
        hosts_by_finding[finding] = [host for host, _ in hosts_and_findings]
    return hosts_by_finding


def replace_host_name(text: str | None, host: str) -> str:
    """Return a text about a host with HOST instead of its name."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text or "")


def make_unreachable(host: str, reason: str) -> HostFacts:
    """Return the facts of a host that did not answer."""
    finding = Finding(FindingStatus.MISSING, "ssh", reason, _find_ssh_remedy(host, reason))
    return HostFacts(host, FindingStatus.UNREACHABLE, reason, (finding,))


def _find_ssh_remedy(host: str, reason: str) -> str:
    if reason == UNKNOWN_NAME:
        return f"correct the name, or give it an address in /etc/hosts or ~/.ssh/config: {host}"
    if "cannot run here" in reason:
        return "install ssh on this machine (openssh-client), or correct its PATH"
    if "permission denied" in reason.lower():
        return f"let ssh in without a password: ssh-copy-id {host}"
    if "host key verification failed" in reason.lower():
        return f"accept its key once: ssh {host} true"
    return f"see that it is up and that this ends at once: ssh -o BatchMode=yes {host} true"


def make_silent(host: str, python: str, reason: str) -> HostFacts:
    """Return the facts of a host that ssh reaches, but on which no Python answers."""
    text = f"neither {python} nor python3 answers: {reason}"
    finding = Finding(FindingStatus.MISSING, "python", text, _CHECK_LAUNCH)
    return HostFacts(host, FindingStatus.MISSING, text, (finding,))


def parse_facts(
    host: str, python: str, answer: Mapping[str, Any], clock_s: float | None
) -> HostFacts:
    """Return the facts of a host from its answer to the survey's program.

    Args:
        host: Its name in the hostfile.
        python: The interpreter that the survey looked for.
        answer: The fields of its first line.
        clock_s: Seconds by which its clock is ahead of this machine's.
    """
    probe = answer["probe"]
    software = (parse_probe(probe["stdout"]) if probe else None) or {}
    gpus = HostGpus.from_answer(answer["gpus"])
    adapters = tuple(Adapter(**fields) for fields in answer["adapters"])
    limits = answer.get("limits", {})
    folder = answer.get("folder", {})
    findings = (
        *(_check_interpreter(python, answer) or _check_software(python, probe, software)),
        *_check_versions(python, software),
        *find_problems(gpus, software.get("torch"), software.get("torch_cuda")),
        *_check_clock(clock_s),
        *_check_ports(adapters),
        *_check_locked_memory(adapters, limits),
        *_check_load(answer),
        *_check_folder(folder),
    )
    missing_findings = (finding for finding in findings if finding.status == FindingStatus.MISSING)
    worst_finding = next(missing_findings, next(iter(findings), None))
    return HostFacts(
        host,
        worst_finding.status if worst_finding else FindingStatus.OK,
        worst_finding.title if worst_finding else "",
        findings,
        **{name: answer[name] for name in ("cores", "memory_gib", "free_gib", "load")},
        gpus=gpus,
        adapters=adapters,
        interpreter=answer["interpreter"],
        python=answer["python"],
        mpi=_format_library(software),
        **{name: software.get(name) for name in ("mpi4py", "torch", "torch_cuda", "spbench")},
        mpi_memory=read_mpi_memory(software),
        clock_s=clock_s,
        governor=answer.get("governor"),
        memlock=_format_memlock(limits),
        nofile=limits.get("nofile"),
        filesystem=folder.get("filesystem"),
    )


def _format_library(software: Mapping[str, Any]) -> str | None:
    text = software.get("library")
    return " ".join(str(text).split(", package:")[0].split()) if text else None


def _check_interpreter(python: str, answer: Mapping[str, Any]) -> tuple[Finding, ...]:
    # if the interpreter itself is unfit, its packages do not matter
    version = answer["python"]
    if answer["probe"] is None:
        text = f"{python} is not there; python3 ({version}) answered instead"
        remedy = "make it there under the same path, or name another with launch.python"
        return (Finding(FindingStatus.MISSING, "python", text, remedy),)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_PYTHON:
        text = f"{python} is Python {version}; ranks need 3.11 or newer"
        return (
            Finding(FindingStatus.MISSING, "python", text, "name a newer one with launch.python"),
        )
    return ()


def _check_software(
    python: str, probe: Mapping[str, Any], software: Mapping[str, Any]
) -> Iterator[Finding]:
    if not software:
        text = _describe_failed_probe(python, probe)
        yield Finding(FindingStatus.MISSING, "MPI library", text, _CHECK_LAUNCH)
        return
    try:
        read_library(python, software)
    except IncompleteInterpreterError as error:
        yield Finding(FindingStatus.MISSING, "MPI library", error.problem, error.remedy)
    if not software["torch"]:
        yield make_missing_torch_finding(f"{python} -m {INSTALL}")


def _describe_failed_probe(python: str, probe: Mapping[str, Any]) -> str:
    if probe["status"] is None:
        return f"{python} did not tell its MPI library within {PROBE_TIMEOUT} s"
    last_line = (probe["stderr"].strip().splitlines() or ["it printed nothing"])[-1]
    return (
        f"{python} cannot be asked for its MPI library, exit status {probe['status']}: {last_line}"
    )


def _check_versions(python: str, software: Mapping[str, Any]) -> Iterator[Finding]:
    version = software.get("spbench")
    if version and version != __version__:
        remedy = f"{python} -m {INSTALL.replace(']', f']=={__version__}')}"
        yield Finding(FindingStatus.NOTE, "spbench", f"{version} there, {__version__} here", remedy)


def _check_clock(clock_s: float | None) -> Iterator[Finding]:
    if clock_s is not None and abs(clock_s) > CLOCK_TOLERANCE:
        direction = "ahead of" if clock_s > 0 else "behind"
        text = (
            f"{abs(clock_s):.1f} s {direction} this machine's: times in its logs are off by as much"
        )
        yield Finding(
            FindingStatus.NOTE, "clock", text, "let chrony or ntpd set the clocks of both"
        )


def _check_ports(adapters: Sequence[Adapter]) -> Iterator[Finding]:
    if adapters and not any(port.state == "ACTIVE" for port in adapters):
        port_states = ", ".join(f"{port.name}:{port.port} {port.state}" for port in adapters)
        text = f"no port is active ({port_states}): MPI takes a slower way"
        yield Finding(
            FindingStatus.NOTE, "adapters", text, "look at cable, switch port and subnet manager"
        )


def _format_memlock(limits: Mapping[str, Any]) -> str | None:
    if "memlock" not in limits:
        return None
    limit = limits["memlock"]
    return "unlimited" if limit is None else f"{limit / 2**20:g} MiB"


def _check_locked_memory(
    adapters: Sequence[Adapter], limits: Mapping[str, Any]
) -> Iterator[Finding]:
    memlock = _format_memlock(limits)
    if adapters and memlock not in (None, "unlimited"):
        text = f"only {memlock} of memory may be locked, and adapters send from locked memory"
        remedy = (
            "set memlock to unlimited in /etc/security/limits.conf, for sshd and slurmd as well"
        )
        yield Finding(FindingStatus.NOTE, "limits", text, remedy)


def _check_load(answer: Mapping[str, Any]) -> Iterator[Finding]:
    load = answer["load"]
    cores = answer["cores"]
    if load is not None and load > BUSY_LOAD * cores:
        load_text = f"load {load:g} on {format_quantity(cores, 'core')}"
        text = describe_high_load(load_text, BUSY_LOAD * cores)
        yield Finding(
            FindingStatus.NOTE, "load", text, "wait until it ends, or choose hosts without this one"
        )


def _check_folder(remote_folder: Mapping[str, Any]) -> Iterator[Finding]:
    if not remote_folder:
        return
    path = os.getcwd()
    local_folder = host_facts.inspect_folder(path)
    remedy = "start spbench in a folder that all hosts share"
    if remote_folder["number"] is None:
        yield Finding(
            FindingStatus.NOTE, "folder", f"{path} is not there, and ranks start in it", remedy
        )
    elif remote_folder["number"] != local_folder["number"]:
        text = f"{path} is another folder there: files that a suite names are not the same"
        yield Finding(FindingStatus.NOTE, "folder", text, remedy)
