"""A host's answer: what it has, and the findings that stand in a run's way."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench import __version__
from spbench.launch.doctor import no_torch
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import NO_GPUS, HostGpus, MpiMemory
from spbench.launch.gpus.findings import amiss
from spbench.launch.load import BUSY
from spbench.launch.mpi_probe import (
    INSTALL,
    LackingError,
    library_in,
    mpi_memory_in,
    probed_in,
)
from spbench.launch.survey.question import PROBE_PATIENCE
from spbench.launch.survey.reach import UNKNOWN_NAME
from spbench_core import host_facts
from spbench_core.quantities import format_quantity

CLOCK_TOLERANCE = 1.0
"""Seconds that a host's clock may differ from this machine's."""
_OLDEST_PYTHON = (3, 11)
_CHECK_LAUNCH = "check launch.python, launch.setup and launch.container"


@dataclass(frozen=True, slots=True)
class Adapter:
    """One port of an InfiniBand or RoCE adapter, in the kernel's words."""

    name: str
    port: str
    state: str
    rate: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host: None and () stand for what it has not told.

    ``status`` is that of the worst finding, and ``reason`` its text. Versions are those of the
    ranks' interpreter; ``torch_cuda`` is the CUDA that its torch is built for, empty for a build
    without, and ``mpi_memory`` tells whether its MPI takes memory of a GPU, and why. ``clock_s`` is
    how far its clock is ahead of this machine's. ``memlock`` is memory that may be locked,
    ``nofile`` the files that a process may open, and ``filesystem`` that of the working folder.
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
        """``2 x 400 Gb/sec (4X NDR), 1 x DOWN``; nothing where there is no adapter."""
        ports = (port.rate if port.state == "ACTIVE" else port.state for port in self.adapters)
        return host_facts.format_name_counts(list(ports))


def findings_of(hosts: Iterable[HostFacts]) -> dict[Finding, list[str]]:
    """Return each finding, and the hosts that it is true of; of several it says HOST for a name."""
    found: dict[Finding, list[tuple[str, Finding]]] = {}
    for facts in hosts:
        for finding in facts.findings:
            text, mend = (nameless(said, facts.host) for said in (finding.text, finding.mend))
            shared = replace(finding, text=text, mend=mend or None)
            found.setdefault(shared, []).append((facts.host, finding))
    return {
        shared if len(told) > 1 else told[0][1]: [host for host, _ in told]
        for shared, told in found.items()
    }


def nameless(said: str | None, host: str) -> str:
    """Return a sentence on a host with HOST in place of its name."""
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", said or "")


def unreached(host: str, reason: str) -> HostFacts:
    """Return the facts of a host that did not answer."""
    finding = Finding(FindingStatus.MISSING, "ssh", reason, _way_in(host, reason))
    return HostFacts(host, FindingStatus.UNREACHABLE, reason, (finding,))


def _way_in(host: str, reason: str) -> str:
    if reason == UNKNOWN_NAME:
        return f"correct the name, or give it an address in /etc/hosts or ~/.ssh/config: {host}"
    if "cannot run here" in reason:
        return "install ssh on this machine (openssh-client), or correct its PATH"
    if "permission denied" in reason.lower():
        return f"let ssh in without a password: ssh-copy-id {host}"
    if "host key verification failed" in reason.lower():
        return f"accept its key once: ssh {host} true"
    return f"see that it is up and that this ends at once: ssh -o BatchMode=yes {host} true"


def mute(host: str, python: str, why: str) -> HostFacts:
    """Return the facts of a host that can be reached, and on which no Python answers."""
    text = f"neither {python} nor python3 answers: {why}"
    finding = Finding(FindingStatus.MISSING, "python", text, _CHECK_LAUNCH)
    return HostFacts(host, FindingStatus.MISSING, text, (finding,))


def facts_of(host: str, python: str, answer: Mapping[str, Any], clock_s: float | None) -> HostFacts:
    """Return the facts of a host, from its answer to `question.program`.

    Args:
        host: Its name in the hostfile.
        python: The interpreter that was asked for.
        answer: The fields of its first line.
        clock_s: How far its clock is ahead of this machine's.
    """
    probe = answer["probe"]
    found = (probed_in(probe["stdout"]) if probe else None) or {}
    gpus = HostGpus.of(answer["gpus"])
    adapters = tuple(Adapter(**fields) for fields in answer["adapters"])
    findings = (
        *(_interpreter(python, answer) or _software(python, probe, found)),
        *_versions(python, found),
        *amiss(gpus, found.get("torch"), found.get("torch_cuda")),
        *_clock(clock_s),
        *_ports(adapters),
        *_locked(adapters, answer.get("limits", {})),
        *_load(answer),
        *_folder(answer.get("folder", {})),
    )
    worst = next(
        (f for f in findings if f.status == FindingStatus.MISSING), next(iter(findings), None)
    )
    return HostFacts(
        host,
        worst.status if worst else FindingStatus.OK,
        f"{worst.subject}: {worst.text}" if worst else "",
        findings,
        **{name: answer[name] for name in ("cores", "memory_gib", "free_gib", "load")},
        gpus=gpus,
        adapters=adapters,
        interpreter=answer["interpreter"],
        python=answer["python"],
        mpi=_library_text(found),
        **{name: found.get(name) for name in ("mpi4py", "torch", "torch_cuda", "spbench")},
        mpi_memory=mpi_memory_in(found),
        clock_s=clock_s,
        governor=answer.get("governor"),
        memlock=_memlock(answer.get("limits", {})),
        nofile=answer.get("limits", {}).get("nofile"),
        filesystem=answer.get("folder", {}).get("filesystem"),
    )


def _library_text(found: Mapping[str, Any]) -> str | None:
    text = found.get("library")
    return " ".join(str(text).split(", package:")[0].split()) if text else None


def _interpreter(python: str, answer: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Findings against the interpreter itself: then its packages do not matter."""
    version = answer["python"]
    if answer["probe"] is None:
        text = f"{python} is not there; python3 ({version}) answered instead"
        mend = "make it there under the same path, or name another with launch.python"
        return (Finding(FindingStatus.MISSING, "python", text, mend),)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_PYTHON:
        text = f"{python} is Python {version}; ranks need 3.11 or newer"
        return (
            Finding(FindingStatus.MISSING, "python", text, "name a newer one with launch.python"),
        )
    return ()


def _software(python: str, probe: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Finding]:
    if not found:
        yield Finding(FindingStatus.MISSING, "MPI library", _untold(python, probe), _CHECK_LAUNCH)
        return
    try:
        library_in(python, found)
    except LackingError as error:
        yield Finding(FindingStatus.MISSING, "MPI library", error.what, error.mend)
    if not found["torch"]:
        yield no_torch(f"{python} -m {INSTALL}")


def _untold(python: str, probe: Mapping[str, Any]) -> str:
    if probe["status"] is None:
        return f"{python} did not tell its MPI library within {PROBE_PATIENCE} s"
    last = (probe["stderr"].strip().splitlines() or ["it printed nothing"])[-1]
    return f"{python} cannot be asked for its MPI library, exit status {probe['status']}: {last}"


def _versions(python: str, found: Mapping[str, Any]) -> Iterator[Finding]:
    there = found.get("spbench")
    if there and there != __version__:
        mend = f"{python} -m {INSTALL.replace(']', f']=={__version__}')}"
        yield Finding(FindingStatus.NOTE, "spbench", f"{there} there, {__version__} here", mend)


def _clock(clock_s: float | None) -> Iterator[Finding]:
    if clock_s is not None and abs(clock_s) > CLOCK_TOLERANCE:
        side = "ahead of" if clock_s > 0 else "behind"
        text = f"{abs(clock_s):.1f} s {side} this machine's: times in its logs are off by as much"
        yield Finding(
            FindingStatus.NOTE, "clock", text, "let chrony or ntpd set the clocks of both"
        )


def _ports(adapters: Sequence[Adapter]) -> Iterator[Finding]:
    if adapters and not any(port.state == "ACTIVE" for port in adapters):
        names = ", ".join(f"{port.name}:{port.port} {port.state}" for port in adapters)
        text = f"no port is active ({names}): MPI takes a slower way"
        yield Finding(
            FindingStatus.NOTE, "adapters", text, "look at cable, switch port and subnet manager"
        )


def _memlock(limits: Mapping[str, Any]) -> str | None:
    if "memlock" not in limits:
        return None
    limit = limits["memlock"]
    return "unlimited" if limit is None else f"{limit / 2**20:g} MiB"


def _locked(adapters: Sequence[Adapter], limits: Mapping[str, Any]) -> Iterator[Finding]:
    told = _memlock(limits)
    if adapters and told not in (None, "unlimited"):
        text = f"only {told} of memory may be locked, and adapters send from locked memory"
        mend = "set memlock to unlimited in /etc/security/limits.conf, for sshd and slurmd as well"
        yield Finding(FindingStatus.NOTE, "limits", text, mend)


def _load(answer: Mapping[str, Any]) -> Iterator[Finding]:
    load = answer["load"]
    have = answer["cores"]
    if load is not None and load > BUSY * have:
        text = f"load {load:g} on {format_quantity(have, 'core')} from other work"
        yield Finding(
            FindingStatus.NOTE, "load", text, "wait, or leave it out with --exclude-hosts"
        )


def _folder(there: Mapping[str, Any]) -> Iterator[Finding]:
    if not there:
        return
    here = host_facts.inspect_folder(os.getcwd())
    name = os.getcwd()
    mend = "start spbench in a folder that all hosts share"
    if there["number"] is None:
        yield Finding(
            FindingStatus.NOTE, "folder", f"{name} is not there, and ranks start in it", mend
        )
    elif there["number"] != here["number"]:
        text = f"{name} is another folder there: files that a suite names are not the same"
        yield Finding(FindingStatus.NOTE, "folder", text, mend)
