"""The memory allocator of the ranks: the system's own, or a tcmalloc that is installed.

glibc gives blocks above 32 MiB back at each use and keeps smaller ones in pieces; tcmalloc does
neither, and models need a third less memory with it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from spbench.errors import MissingError, UsageError
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import Placed
from spbench.suites.settings import LaunchSettings

TCMALLOC = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
"""Names of the library, the one without a profiler first."""
FOLDERS = tuple(
    Path(prefix) / name
    for prefix in ("/usr/local", "/usr", "/")
    for name in (f"lib/{sysconfig.get_config_var('MULTIARCH')}", "lib64", "lib")
)
_PRELOAD = "LD_PRELOAD"
_HOOKED = "mpirun_rsh"
"""MVAPICH2 keeps memory registered with the adapter, and watches its own malloc for that."""


def with_allocator(
    settings: LaunchSettings,
    launcher: str,
    placement: Sequence[Placed],
    env: Mapping[str, str],
    *,
    here: bool,
) -> LaunchSettings:
    """Return settings whose environment has the ranks load their allocator.

    ``auto`` is tcmalloc where all ranks are on this machine, it is installed, and nothing else is
    preloaded; with other hosts, in containers and under mpirun_rsh it is the system's.

    Args:
        settings: The settings of the launch.
        launcher: The launcher's name.
        placement: The ranks' hosts, where they are known.
        env: The environment.
        here: Whether ranks without a placement are on this machine.

    Raises:
        MissingError: ``tcmalloc`` is asked for, and this machine, where ranks run, has none.
        UsageError: ``tcmalloc`` is asked for beside an LD_PRELOAD of the settings.
    """
    asked = settings.allocator
    if asked == "system":
        return settings
    here = all(is_local(placed.host) for placed in placement) if placement else here
    here = here and settings.container is None
    library = _installed(env) if here else None
    if asked == "tcmalloc":
        return _preloading(settings, _demanded(settings, library, here=here))
    free = _PRELOAD not in env and _PRELOAD not in settings.env
    if library is None or not free or launcher == _HOOKED:
        return settings
    return _preloading(settings, library)


def _demanded(settings: LaunchSettings, library: str | None, *, here: bool) -> str:
    if _PRELOAD in settings.env:
        raise UsageError(
            "launch.allocator tcmalloc: launch.env has an LD_PRELOAD already; put tcmalloc into "
            "it, and leave out the allocator"
        )
    if library is None and here:
        raise MissingError(
            f"launch.allocator tcmalloc: no {' or '.join(TCMALLOC)} on this machine; install it "
            "(Debian: libtcmalloc-minimal4), or take allocator: auto"
        )
    return library or TCMALLOC[0]


def _preloading(settings: LaunchSettings, library: str) -> LaunchSettings:
    return settings.model_copy(update={"env": {**settings.env, _PRELOAD: library}})


def _installed(env: Mapping[str, str]) -> str | None:
    """Return the library's name, by which the linker finds it too; None where it is not there."""
    own = (Path(folder) for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder)
    folders = (*own, *FOLDERS)
    return next(
        (name for name in TCMALLOC for folder in folders if (folder / name).is_file()), None
    )
