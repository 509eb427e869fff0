"""Findings about this machine, in the order in which a run would meet them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec

from spbench.errors import MissingError
from spbench.launch.detect import detect_mpi_library, find_launcher, find_mismatch, load_traits
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import HostGpus
from spbench.launch.gpus.findings import (
    describe_torch,
    find_problems,
    list_gpus,
    make_mpi_memory_finding,
)
from spbench.launch.load import find_other_work
from spbench.launch.mpi_probe import INSTALL, IncompleteInterpreterError, MpiLibrary
from spbench.launch.placement import count_cores
from spbench.launch.program import find_interpreter
from spbench.suites.launcher_names import list_launcher_names
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts
from spbench_core.number_text import format_quantity

_GPU_MODULE = "pynvml"
"""The module of nvidia-ml-py, which only a host with GPUs needs."""
NOT_NEEDED = "not needed, and not installed"
"""The beginning of the finding for a launcher that this machine does not need."""
_MISSING_MODULES = {
    "numpy": Finding(
        FindingStatus.MISSING,
        "extra workers",
        "numpy is not installed: allreduce.sweep, kvstore.push_pull and models need it",
    ),
    "PIL": Finding(
        FindingStatus.NOTE,
        "extra workers",
        "pillow is not installed: models that read images from disk (app: medical) need it",
    ),
    _GPU_MODULE: Finding(
        FindingStatus.NOTE,
        "extra gpu",
        "nvidia-ml-py is not installed: the load of GPUs is not shown during runs",
    ),
}
"""The finding for each module that the probe of the ranks' interpreter looks for."""


def examine_machine(python: str | None, ranks: int, env: Mapping[str, str]) -> list[Finding]:
    """Return findings about this machine: software first, then devices and load."""
    settings = LaunchSettings.model_validate({"python": python} if python else {})
    ranks_python = find_interpreter(settings)
    findings = [Finding(FindingStatus.OK, "python", ranks_python)]
    library = None
    try:
        library = detect_mpi_library(ranks_python)
    except IncompleteInterpreterError as error:
        findings.append(Finding(FindingStatus.MISSING, "MPI library", error.problem, error.remedy))
    except MissingError as error:
        findings.append(Finding(FindingStatus.MISSING, "MPI library", str(error)))
    findings += _check_software(ranks_python, library) if library else []
    findings += check_extras(ranks_python, library, sys.executable)
    findings += _check_launchers(library, settings, env)
    return [*findings, *_check_devices(library, env), *_check_cores(ranks), *find_other_work()]


def make_missing_torch_finding(remedy: str) -> Finding:
    """Return the finding that an interpreter of ranks lacks torch."""
    text = "the halo, memory and compute benchmarks need it"
    return Finding(FindingStatus.MISSING, "torch", text, remedy)


def check_extras(python: str, library: MpiLibrary | None, own_python: str) -> list[Finding]:
    """Return a finding for each incomplete extra, or one that all extras are complete.

    Args:
        python: The interpreter of the ranks, which needs the extras ``workers`` and ``mpi``, and
            ``gpu`` on a host with GPUs.
        library: The MPI library of that interpreter; None if it lacks one, which has its own
            finding.
        own_python: The interpreter of the console, which needs the extra ``serve``.
    """
    findings = []
    for name in _list_missing_modules(library):
        finding = _MISSING_MODULES[name]
        extra = finding.subject.removeprefix("extra ")
        findings.append(replace(finding, remedy=_format_install_command(python, extra)))
    if find_spec("textual_serve") is None:
        text = "not installed: `spbench serve` shows the console in a browser by it"
        remedy = _format_install_command(own_python, "serve")
        findings.append(Finding(FindingStatus.NOTE, "extra serve", text, remedy))
    if findings or library is None or not library.torch:
        return findings
    return [Finding(FindingStatus.OK, "extras", "nothing is missing: workers, mpi, serve")]


def _list_missing_modules(library: MpiLibrary | None) -> list[str]:
    if library is None:
        return []
    has_gpus = library.gpus is not None and library.gpus.any_present
    return [name for name in library.lacks if name != _GPU_MODULE or has_gpus]


def _format_install_command(python: str, extra: str) -> str:
    return f"{python} -m {INSTALL.replace('workers,mpi', extra)}"


def _check_software(python: str, library: MpiLibrary) -> Iterator[Finding]:
    yield Finding(FindingStatus.OK, "MPI library", library.version_text)
    yield Finding(FindingStatus.OK, "mpi4py", library.mpi4py)
    if library.torch:
        yield Finding(FindingStatus.OK, "torch", describe_torch(library.torch, library.torch_cuda))
    else:
        yield make_missing_torch_finding(f"{python} -m {INSTALL}")


def _check_launchers(
    library: MpiLibrary | None, settings: LaunchSettings, env: Mapping[str, str]
) -> Iterator[Finding]:
    try:
        chosen = find_launcher(settings, library, env)
        choice = Finding(FindingStatus.OK, "launcher", f"auto takes {chosen.launcher.name}")
        missing_text = f"{NOT_NEEDED}; it starts ranks of"
    except MissingError as error:
        choice = Finding(FindingStatus.MISSING, "launcher", str(error))
        missing_text = "not installed; it starts ranks of"
    for name in list_launcher_names():
        with_name = settings.model_copy(update={"launcher": name})
        try:
            installed = find_launcher(with_name, library, env)
        except MissingError:
            text = f"{missing_text} {load_traits(name).starts}"
            yield Finding(FindingStatus.OK, name, text)
            continue
        mismatch = find_mismatch(installed, library) if library else None
        note = "; it does not start ranks of the MPI library above" if mismatch else ""
        status = FindingStatus.NOTE if mismatch else FindingStatus.OK
        yield Finding(status, name, f"{installed.executable} ({installed.version}){note}")
    yield choice


def _check_devices(library: MpiLibrary | None, env: Mapping[str, str]) -> Iterator[Finding]:
    gpus = HostGpus.from_answer(
        {**host_facts.find_gpus(), "visible": env.get(host_facts.VISIBLE_DEVICES)}
    )
    yield from list_gpus(gpus)
    if gpus.any_present and library and library.mpi_memory:
        yield make_mpi_memory_finding(library.mpi_memory)
    torch = library.torch if library else None
    torch_cuda = library.torch_cuda if library else None
    yield from find_problems(gpus, torch, torch_cuda)
    for port in host_facts.list_adapters():
        text = f"{port['name']}:{port['port']} {port['state']}, {port['rate']}"
        yield Finding(FindingStatus.OK, "adapter", text.removesuffix(", "))


def _check_cores(ranks: int) -> Iterator[Finding]:
    usable = count_cores()
    total = os.cpu_count() or 1
    limit = f" of {total}" if usable < total else ""
    yield Finding(FindingStatus.OK, "cores", f"{usable}{limit} may be used")
    if ranks > usable:
        yield Finding(
            FindingStatus.NOTE,
            "cores",
            f"{ranks} ranks would share {format_quantity(usable, 'core')}: results hold, times are "
            "not the hardware's",
            f"use at most {format_quantity(usable, 'rank')} on this host, or name more hosts with "
            "--hostfile",
        )
