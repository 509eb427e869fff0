"""Findings about spbench's extras: which are missing, and the line that installs each."""

from __future__ import annotations

from importlib.util import find_spec

from spbench.launch.finding import Finding
from spbench.launch.mpi_probe import INSTALL, MpiLibrary

_NEEDED_BY = {
    "numpy": "allreduce.sweep, kvstore.push_pull and models need it",
    "PIL": "models that read images from disk (app: medical) need it",
}
"""The sentence about each module of the extra ``workers`` that is asked for by itself."""


def missing_extras(python: str, library: MpiLibrary | None, own_python: str) -> list[Finding]:
    """Return a finding for each extra that lacks something; one that says so where none does.

    Args:
        python: The interpreter of the ranks, which needs the extras ``workers`` and ``mpi``.
        library: What it has of both; None where it lacks them, which is told with its MPI library.
        own_python: The interpreter of the console, which needs the extra ``serve``.
    """
    found = [_lacking(python, name) for name in (library.lacks if library else ())]
    if find_spec("textual_serve") is None:
        text = "not installed: `spbench serve` shows the console in a browser by it"
        found.append(Finding("note", "extra serve", text, _install(own_python, "serve")))
    if found or library is None or not library.torch:
        return found
    return [Finding("ok", "extras", "all are here: workers, mpi, serve")]


def _lacking(python: str, module: str) -> Finding:
    name = "pillow" if module == "PIL" else module
    status = "missing" if module == "numpy" else "note"
    text = f"{name} is not installed: {_NEEDED_BY[module]}"
    return Finding(status, "extra workers", text, _install(python, "workers"))


def _install(python: str, extra: str) -> str:
    return f"{python} -m {INSTALL.replace('workers,mpi', extra)}"
