"""An MPI library and its launcher that are assumed: launch lines for a cluster, made elsewhere."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

from spbench.errors import UsageError, did_you_mean
from spbench.launch.detect import Found, launcher_named, launchers_of, mismatch, traits_named
from spbench.launch.mpi_probe import LIBRARIES, MpiLibrary
from spbench.suites.settings import LaunchSettings

_WORD = re.compile(r"([a-z]+2?)-(\d[\w.+~-]*)")


def assumed_library(word: str) -> MpiLibrary:
    """Return the library that ``mvapich2-2.3.7`` names.

    Raises:
        UsageError: It names none.
    """
    found = _WORD.fullmatch(word)
    if found is None or found[1] not in LIBRARIES:
        near = did_you_mean(word.partition("-")[0], LIBRARIES)
        known = ", ".join(LIBRARIES)
        raise UsageError(f"--assume {word}: write LIBRARY-VERSION{near}; libraries are {known}")
    library = MpiLibrary(found[1], "")
    return MpiLibrary(found[1], f"{library.title} {found[2]}")


def assumed_launcher(settings: LaunchSettings, library: MpiLibrary) -> Found:
    """Return the launcher of the settings, or for ``auto`` the library's own.

    Raises:
        UsageError: It does not start ranks of that library.
    """
    own = _launchers_of(library)
    name = own[0] if settings.launcher == "auto" else settings.launcher
    if name in launchers_of(library.name) and name not in own:
        text = f"{library.version_text} has no {name}; it comes with {' and '.join(own)}"
        raise UsageError(f"--assume: {text}")
    version = f"{name} of {library.version_text} (assumed, not run)"
    found = Found(launcher_named(name), Path(traits_named(name).program or name), version)
    if why := mismatch(found, library):
        raise UsageError(f"--assume: {why}")
    return found


def _launchers_of(library: MpiLibrary) -> tuple[str, ...]:
    """Return the launchers that come with a version, the best first."""
    major = int(re.sub(r"\D.*", "", library.version_text.rpartition(" ")[2]))
    names = launchers_of(library.name)
    dropped = {name: traits_named(name).dropped_in.get(library.name, inf) for name in names}
    there = [name for name in names if major < dropped[name]]
    # A launcher that was dropped later was the library's own until then.
    return tuple(sorted(there, key=dropped.__getitem__))
