"""Findings about this machine, subject by subject, as a run would meet them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from spbench.errors import MissingError
from spbench.launch.detect import find_launcher, mismatch, mpi_library, traits_named
from spbench.launch.extras import missing_extras
from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.gpus.facts import HostGpus
from spbench.launch.gpus.findings import amiss, in_order, messages, torch_words
from spbench.launch.load import other_work
from spbench.launch.mpi_probe import INSTALL, LackingError, MpiLibrary
from spbench.launch.placement import cores
from spbench.launch.program import interpreter
from spbench.suites.launcher_names import list_launcher_names
from spbench.suites.settings import LaunchSettings
from spbench_core import host_facts
from spbench_core.quantities import format_quantity


def examine(python: str | None, ranks: int, env: Mapping[str, str]) -> list[Finding]:
    """Return what was found, the needed things first."""
    settings = LaunchSettings.model_validate({"python": python} if python else {})
    ranks_python = interpreter(settings)
    findings = [Finding(FindingStatus.OK, "python", ranks_python)]
    library = None
    try:
        library = mpi_library(ranks_python)
    except LackingError as error:
        findings.append(Finding(FindingStatus.MISSING, "MPI library", error.what, error.mend))
    except MissingError as error:
        findings.append(Finding(FindingStatus.MISSING, "MPI library", str(error)))
    findings += _software(ranks_python, library) if library else []
    findings += missing_extras(ranks_python, library, sys.executable)
    findings += _launchers(library, settings, env)
    return [*findings, *_devices(library, env), *_cores(ranks), *other_work()]


def no_torch(mend: str) -> Finding:
    """Return what is said of an interpreter of ranks that has no torch."""
    text = "the halo, memory and compute benchmarks need it"
    return Finding(FindingStatus.MISSING, "torch", text, mend)


def _software(python: str, library: MpiLibrary) -> Iterator[Finding]:
    yield Finding(FindingStatus.OK, "MPI library", library.version_text)
    yield Finding(FindingStatus.OK, "mpi4py", library.mpi4py)
    if library.torch:
        yield Finding(FindingStatus.OK, "torch", torch_words(library.torch, library.torch_cuda))
    else:
        yield no_torch(f"{python} -m {INSTALL}")


def _launchers(
    library: MpiLibrary | None, settings: LaunchSettings, env: Mapping[str, str]
) -> Iterator[Finding]:
    for name in list_launcher_names():
        chosen = settings.model_copy(update={"launcher": name})
        try:
            found = find_launcher(chosen, library, env)
        except MissingError:
            starts = traits_named(name).starts
            yield Finding(FindingStatus.NOTE, name, f"not installed; it starts ranks of {starts}")
            continue
        why = mismatch(found, library) if library else None
        note = "; it does not start ranks of the MPI library above" if why else ""
        status = FindingStatus.NOTE if why else FindingStatus.OK
        yield Finding(status, name, f"{found.executable} ({found.version}){note}")
    try:
        found = find_launcher(settings, library, env)
    except MissingError as error:
        yield Finding(FindingStatus.MISSING, "launcher", str(error))
    else:
        yield Finding(FindingStatus.OK, "launcher", f"auto takes {found.launcher.name}")


def _devices(library: MpiLibrary | None, env: Mapping[str, str]) -> Iterator[Finding]:
    told = {**host_facts.find_gpus(), "visible": env.get(host_facts.VISIBLE_DEVICES)}
    gpus = HostGpus.of(told)
    yield from in_order(gpus)
    torch, built = (library.torch, library.torch_cuda) if library else (None, None)
    if gpus.there and library and library.mpi_memory:
        yield messages(library.mpi_memory)
    yield from amiss(gpus, torch, built)
    for port in host_facts.list_adapters():
        text = f"{port['name']}:{port['port']} {port['state']}, {port['rate']}"
        yield Finding(FindingStatus.OK, "adapter", text.removesuffix(", "))


def _cores(ranks: int) -> Iterator[Finding]:
    have = cores()
    all_cores = os.cpu_count() or 1
    limited = f" of {all_cores}" if have < all_cores else ""
    yield Finding(FindingStatus.OK, "cores", f"{have}{limited} may be used")
    if ranks > have:
        yield Finding(
            FindingStatus.NOTE,
            "cores",
            f"{ranks} ranks would share {format_quantity(have, 'core')}: results hold, times are "
            "not the hardware's",
            f"use at most {format_quantity(have, 'rank')} on this host, or name more hosts with "
            "--hostfile",
        )
