"""Checks before a launch that hosts are reached and have folder and program."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from shlex import quote

from spbench.launch.hosts.names import is_local
from spbench.launch.reaping import kill_and_wait
from spbench.launch.survey.progress import Progress, ignore_progress, report_progress

ANSWER_TIMEOUT = 8.0
"""Seconds that a host has to answer."""
MAX_CONCURRENT = 64
"""The number of hosts that are queried at the same time."""
UNKNOWN_NAME = "its name does not resolve"
_NO_FOLDER = 91
_NO_PROGRAM = 92
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


async def find_unreachable(
    hosts: Iterable[str],
    progress: Progress = ignore_progress,
    *,
    timeout_seconds: float = ANSWER_TIMEOUT,
) -> dict[str, str]:
    """Return a reason for each host that ssh cannot reach.

    Names of this machine count as reached. At most 64 hosts are queried at once, each for up to
    ``timeout_seconds``. ``progress`` takes a line every second.
    """
    return await _query_hosts(hosts, _check_reachable, progress, timeout_seconds)


async def find_hosts_lacking(hosts: Iterable[str], folder: str, program: Path) -> dict[str, str]:
    """Return a reason for each host that is unreachable or lacks folder or program.

    Hosts are queried like by `find_unreachable`.
    """

    async def check(host: str) -> str | None:
        return await _check_folder_and_program(host, folder, program)

    return await _query_hosts(hosts, check)


async def _check_folder_and_program(host: str, folder: str, program: Path) -> str | None:
    shell_tests = f"test -d {quote(folder)} || exit {_NO_FOLDER}; "
    shell_tests += f"test -x {quote(str(program))} || exit {_NO_PROGRAM}"
    failure = await _run_ssh(host, shell_tests)
    if failure == f"ssh ended with status {_NO_FOLDER}":
        return f"it has no folder {folder}"
    if failure == f"ssh ended with status {_NO_PROGRAM}":
        return f"it has no {program}"
    return None if failure is None else await explain_unreachable(host, failure)


async def _query_hosts(
    hosts: Iterable[str],
    check: Callable[[str], Awaitable[str | None]],
    progress: Progress = ignore_progress,
    timeout_seconds: float = ANSWER_TIMEOUT,
) -> dict[str, str]:
    """Run a check on each host except this machine; return reasons of failures."""
    remote_hosts = [host for host in dict.fromkeys(hosts) if not is_local(host)]
    query_limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def query(host: str) -> str | None:
        async with query_limit:
            try:
                reason = await asyncio.wait_for(check(host), timeout_seconds)
            except TimeoutError:
                reason = f"no answer in {timeout_seconds:g} s"
            answer_counts.count(succeeded=reason is None)
            return reason

    async with report_progress(len(remote_hosts), progress) as answer_counts:
        reasons = await asyncio.gather(*map(query, remote_hosts))
    return {
        host: reason
        for host, reason in zip(remote_hosts, reasons, strict=True)
        if reason is not None
    }


async def read_ssh_names(hosts: Iterable[str]) -> dict[str, str]:
    """Return the name of each host in ssh's configuration and messages.

    Hosts are queried like by `find_unreachable`, but no connection is opened. A host is left out if
    ssh does not answer.
    """
    names: dict[str, str] = {}

    async def query(host: str) -> str | None:
        if (name := await _read_ssh_name(host)) is not None:
            names[host] = name
        return None

    await _query_hosts(hosts, query)
    return names


async def _read_ssh_name(host: str) -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            "ssh",
            "-G",
            host,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        stdout, _ = await process.communicate()
    finally:
        await kill_and_wait(process)
    lines = stdout.decode(errors="replace").splitlines()
    return next((line.split()[1] for line in lines if line.startswith("hostname ")), None)


async def find_unresolved(hosts: Iterable[str]) -> list[str]:
    """Return the hosts that the resolver does not know, whether ssh does or not."""
    remote_hosts = [host for host in dict.fromkeys(hosts) if not is_local(host)]
    is_resolved_by_host = await asyncio.gather(*map(_resolves, remote_hosts))
    return [
        host
        for host, is_known in zip(remote_hosts, is_resolved_by_host, strict=True)
        if not is_known
    ]


async def _check_reachable(host: str) -> str | None:
    failure = await _run_ssh(host)
    return None if failure is None else await explain_unreachable(host, failure)


async def explain_unreachable(host: str, failure: str) -> str:
    """Return why ssh cannot reach a host, from the failure that ssh reported.

    The resolver decides only if ssh reports nothing or an unknown name, because a name may be an
    alias in ssh's configuration.
    """
    is_silent = failure.startswith(("exit status", "ssh ended"))
    unknown_name = "resolve hostname" in failure.lower()
    if (is_silent or unknown_name) and not await _resolves(host):
        return UNKNOWN_NAME
    return failure


async def _resolves(host: str) -> bool:
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return True


async def _run_ssh(host: str, command: str = "true") -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            *SSH,
            host,
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"ssh is not installed here ({error.strerror})"
    try:
        _, stderr = await process.communicate()
    finally:
        await kill_and_wait(process)
    if process.returncode == 0:
        return None
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ssh ended with status {process.returncode}"
