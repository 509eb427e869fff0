"""Containers of the ranks: a runtime's command, which stands before the interpreter."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

from spbench.errors import UsageError
from spbench.suites.settings import Container

_SHARED = ("--network=host", "--pid=host", "--ipc=host")
"""One network, process table and /dev/shm for all ranks of a host, as MPI takes them to be."""

# docker has no word for a whole environment: the names are passed, and it reads their values.
_WITH_ENVIRONMENT = "names=$(awk 'BEGIN { for (name in ENVIRON) print \"--env=\" name }')\n"
_DOCKER = _WITH_ENVIRONMENT + 'exec docker run $names --user="$(id -u):$(id -g)" "$@"'


def container_prefix(container: str | Container | None) -> tuple[str, ...]:
    """Return the words before the interpreter: a user's own prefix, or a runtime with its image.

    The working folder has its own path inside, as /tmp has, where launchers leave sockets for
    ranks; the launcher's whole environment goes in.

    Raises:
        UsageError: A prefix cannot be split into words, or the working folder was deleted.
    """
    if isinstance(container, Container):
        folder = _working_folder()
        return _RUNTIMES[container.runtime](container, _mounts(container, folder), folder)
    try:
        return tuple(shlex.split(container or ""))
    except ValueError as error:
        raise UsageError(f"launch.container: {container!r}: {error}") from None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder in which you are was deleted; go to another one") from None


def _mounts(container: Container, folder: str) -> Sequence[str]:
    own = (folder, "/tmp")
    given = tuple(mount if ":" in mount else f"{mount}:{mount}" for mount in container.mounts)
    taken = {mount.split(":")[1] for mount in given}
    return (*(f"{path}:{path}" for path in dict.fromkeys(own) if path not in taken), *given)


def _apptainer(container: Container, mounts: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return ``apptainer exec``: it shares the host's namespaces and environment by itself."""
    bound = (*mounts, "/dev/shm:/dev/shm")
    binds = [word for mount in bound for word in ("--bind", mount)]
    return ("apptainer", "exec", *binds, "--pwd", folder, *container.args, container.image)


def _podman(container: Container, mounts: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return ``podman run``; without root the user inside is the one outside."""
    user = () if os.geteuid() == 0 else ("--userns=keep-id",)
    words = ("podman", "run", "--rm", "--env-host", *_SHARED, *user)
    return (*words, *_volumes(mounts), "--workdir", folder, *container.args, container.image)


def _docker(container: Container, mounts: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return ``docker run`` in a shell, which names the variables that a rank has."""
    words = ("--rm", *_SHARED, *_volumes(mounts), "--workdir", folder)
    return ("sh", "-c", _DOCKER, "spbench-docker", *words, *container.args, container.image)


def _volumes(mounts: Sequence[str]) -> Sequence[str]:
    return [word for mount in mounts for word in ("--volume", mount)]


_RUNTIMES: dict[str, Callable[[Container, Sequence[str], str], tuple[str, ...]]] = {
    "apptainer": _apptainer,
    "podman": _podman,
    "docker": _docker,
}
