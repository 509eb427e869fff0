"""The memory allocator of the ranks: that of the system, or an installed tcmalloc.

glibc returns blocks above 32 MiB to the kernel at each use and keeps smaller ones fragmented.
tcmalloc does neither, and models need a third less memory with it.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from spbench.errors import MissingError, UsageError
from spbench.launch.hosts.names import is_local
from spbench.launch.launcher import RankBlock
from spbench.suites.settings import LaunchSettings

TCMALLOC = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
"""Names of the library. The one without a profiler comes first."""
FOLDERS = tuple(
    Path(prefix) / name
    for prefix in ("/usr/local", "/usr", "/")
    for name in (f"lib/{sysconfig.get_config_var('MULTIARCH')}", "lib64", "lib")
)
_PRELOAD = "LD_PRELOAD"
# MVAPICH2 keeps memory registered with the adapter and hooks its own malloc to track it.
_LAUNCHER_HOOKING_MALLOC = "mpirun_rsh"


def preload_allocator(
    settings: LaunchSettings,
    launcher: str,
    placement: Sequence[RankBlock],
    env: Mapping[str, str],
    *,
    is_local_job: bool,
) -> LaunchSettings:
    """Return settings with an environment in which the ranks load their allocator.

    ``auto`` means tcmalloc if all ranks are on this machine, it is installed, and no other library
    is preloaded. With other hosts, in containers and under mpirun_rsh, ``auto`` means the system's
    allocator.

    Args:
        settings: The settings of the launch.
        launcher: The launcher's name.
        placement: The hosts of the ranks, if they are known.
        env: The environment.
        is_local_job: Whether ranks without a placement are on this machine.

    Raises:
        MissingError: ``tcmalloc`` is requested, ranks run on this machine, and it is not installed.
        UsageError: ``tcmalloc`` is requested together with an LD_PRELOAD of the settings.
    """
    allocator = settings.allocator
    if allocator == "system":
        return settings

    all_local = all(is_local(block.host) for block in placement) if placement else is_local_job
    all_local = all_local and settings.container is None
    library = _find_installed(env) if all_local else None
    if allocator == "tcmalloc":
        return _add_preload(settings, _require_tcmalloc(settings, library, all_local=all_local))

    may_preload = _PRELOAD not in env and _PRELOAD not in settings.env
    if library is None or not may_preload or launcher == _LAUNCHER_HOOKING_MALLOC:
        return settings
    return _add_preload(settings, library)


def _require_tcmalloc(settings: LaunchSettings, library: str | None, *, all_local: bool) -> str:
    if _PRELOAD in settings.env:
        raise UsageError(
            "launch.allocator tcmalloc: launch.env has an LD_PRELOAD already; put tcmalloc into "
            "it, and leave out the allocator"
        )
    if library is None and all_local:
        raise MissingError(
            f"launch.allocator tcmalloc: no {' or '.join(TCMALLOC)} on this machine; install it "
            "(Debian: libtcmalloc-minimal4), or take allocator: auto"
        )
    return library or TCMALLOC[0]


def _add_preload(settings: LaunchSettings, library: str) -> LaunchSettings:
    return settings.model_copy(update={"env": {**settings.env, _PRELOAD: library}})


def _find_installed(env: Mapping[str, str]) -> str | None:
    """Return the library's file name; None if missing.

    The linker also finds it by this name.
    """
    environment_folders = (
        Path(folder) for folder in env.get("LD_LIBRARY_PATH", "").split(":") if folder
    )
    folders = (*environment_folders, *FOLDERS)
    return next(
        (name for name in TCMALLOC for folder in folders if (folder / name).is_file()), None
    )
