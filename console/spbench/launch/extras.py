"""Findings about spbench's extras: which are missing, and the line that installs each."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from spbench.launch.finding import Finding, FindingStatus
from spbench.launch.mpi_probe import INSTALL, MpiLibrary

_WORKERS = {
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
}
"""The finding of each module of the extra ``workers`` that the probe asks for by itself."""


def missing_extras(python: str, library: MpiLibrary | None, own_python: str) -> list[Finding]:
    """Return a finding for each extra that lacks something; one that says so where none does.

    Args:
        python: The interpreter of the ranks, which needs the extras ``workers`` and ``mpi``.
        library: What it has of both; None where it lacks them, which is told with its MPI library.
        own_python: The interpreter of the console, which needs the extra ``serve``.
    """
    mend = _install(python, "workers")
    found = [replace(_WORKERS[name], mend=mend) for name in (library.lacks if library else ())]
    if find_spec("textual_serve") is None:
        text = "not installed: `spbench serve` shows the console in a browser by it"
        found.append(
            Finding(FindingStatus.NOTE, "extra serve", text, _install(own_python, "serve"))
        )
    if found or library is None or not library.torch:
        return found
    return [Finding(FindingStatus.OK, "extras", "nothing is missing: workers, mpi, serve")]


def _install(python: str, extra: str) -> str:
    return f"{python} -m {INSTALL.replace('workers,mpi', extra)}"
