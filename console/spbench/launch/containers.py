"""Containers of the ranks: a runtime's command, placed before the interpreter."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

from spbench.errors import UsageError
from spbench.suites.settings import Container

# MPI expects all ranks of a host to share a network, a process table and /dev/shm.
_SHARED = ("--network=host", "--pid=host", "--ipc=host")

# docker has no option to pass the whole environment. It reads the values of variables that are
# passed by name.
_WITH_ENVIRONMENT = "names=$(awk 'BEGIN { for (name in ENVIRON) print \"--env=\" name }')\n"
_DOCKER = _WITH_ENVIRONMENT + 'exec docker run $names --user="$(id -u):$(id -g)" "$@"'


def build_container_prefix(container: str | Container | None) -> tuple[str, ...]:
    """Return the arguments before the interpreter that run it in a container.

    These are a user's prefix, or a runtime with its image.

    The working folder has the same path inside, and so has /tmp, in which launchers leave sockets
    for ranks. The launcher's whole environment is passed on.

    Raises:
        UsageError: A prefix cannot be split into words, or the working folder was deleted.
    """
    if isinstance(container, Container):
        folder = _find_working_folder()
        return _RUNTIMES[container.runtime](container, _list_mounts(container, folder), folder)
    try:
        return tuple(shlex.split(container or ""))
    except ValueError as error:
        raise UsageError(f"launch.container: {container!r}: {error}") from None


def _find_working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder in which you are was deleted; go to another one") from None


def _list_mounts(container: Container, folder: str) -> Sequence[str]:
    configured_mounts = tuple(
        mount if ":" in mount else f"{mount}:{mount}" for mount in container.mounts
    )
    target_paths = {mount.split(":")[1] for mount in configured_mounts}
    default_mounts = (
        f"{path}:{path}" for path in dict.fromkeys((folder, "/tmp")) if path not in target_paths
    )
    return (*default_mounts, *configured_mounts)


def _build_apptainer_prefix(
    container: Container, mounts: Sequence[str], folder: str
) -> tuple[str, ...]:
    """Return ``apptainer exec``, which shares namespaces and environment by default."""
    bind_options = [arg for mount in (*mounts, "/dev/shm:/dev/shm") for arg in ("--bind", mount)]
    return ("apptainer", "exec", *bind_options, "--pwd", folder, *container.args, container.image)


def _build_podman_prefix(
    container: Container, mounts: Sequence[str], folder: str
) -> tuple[str, ...]:
    """Return ``podman run``. Without root, the user inside is the one outside."""
    user_options = () if os.geteuid() == 0 else ("--userns=keep-id",)
    options = ("podman", "run", "--rm", "--env-host", *_SHARED, *user_options)
    return (
        *options,
        *_build_volume_options(mounts),
        "--workdir",
        folder,
        *container.args,
        container.image,
    )


def _build_docker_prefix(
    container: Container, mounts: Sequence[str], folder: str
) -> tuple[str, ...]:
    """Return ``docker run`` in a shell, which lists the names of a rank's variables."""
    options = ("--rm", *_SHARED, *_build_volume_options(mounts), "--workdir", folder)
    return ("sh", "-c", _DOCKER, "spbench-docker", *options, *container.args, container.image)


def _build_volume_options(mounts: Sequence[str]) -> Sequence[str]:
    return [arg for mount in mounts for arg in ("--volume", mount)]


_RUNTIMES: dict[str, Callable[[Container, Sequence[str], str], tuple[str, ...]]] = {
    "apptainer": _build_apptainer_prefix,
    "podman": _build_podman_prefix,
    "docker": _build_docker_prefix,
}
