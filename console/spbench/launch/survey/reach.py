"""Hosts that cannot be reached by ssh, found before a launch is tried."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from shlex import quote

from spbench.launch.hosts.names import is_local
from spbench.launch.reaping import killed
from spbench.launch.survey.progress import Say, nobody, progress

DEADLINE = 8.0
"""Seconds that a host has for its answer."""
AT_ONCE = 64
"""Hosts that are asked at the same time, at most."""
UNKNOWN_NAME = "its name does not resolve"
_NO_FOLDER = 91
_NO_PROGRAM = 92
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


async def unreachable(hosts: Iterable[str], say: Say = nobody) -> dict[str, str]:
    """Return host -> why ssh cannot reach it, in few words; {} where all is well.

    This machine's own names are taken as reached. At most 64 hosts are asked at once, each for
    8 s; ``say`` takes a line on how far it is, every second.
    """
    return await _each(hosts, _trouble, say)


async def unfit(hosts: Iterable[str], folder: str, program: Path) -> dict[str, str]:
    """Return host -> why no rank can start there: it is not reached, or lacks one of the two.

    Hosts are asked as by `unreachable`.
    """
    return await _each(hosts, lambda host: _lack(host, folder, program))


async def _lack(host: str, folder: str, program: Path) -> str | None:
    tests = f"test -d {quote(folder)} || exit {_NO_FOLDER}; "
    tests += f"test -x {quote(str(program))} || exit {_NO_PROGRAM}"
    ssh = await _ssh_trouble(host, tests)
    if ssh == f"ssh ended with status {_NO_FOLDER}":
        return f"it has no folder {folder}"
    if ssh == f"ssh ended with status {_NO_PROGRAM}":
        return f"it has no {program}"
    return None if ssh is None else await reason(host, ssh)


async def _each(
    hosts: Iterable[str], trouble: Callable[[str], Awaitable[str | None]], say: Say = nobody
) -> dict[str, str]:
    names = [host for host in dict.fromkeys(hosts) if not is_local(host)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(host: str) -> str | None:
        async with gate:
            try:
                why = await asyncio.wait_for(trouble(host), DEADLINE)
            except TimeoutError:
                why = f"no answer in {DEADLINE:g} s"
            asked.count(well=why is None)
            return why

    async with progress(len(names), say) as asked:
        reasons = await asyncio.gather(*map(ask, names))
    return {host: why for host, why in zip(names, reasons, strict=True) if why is not None}


async def ssh_names(hosts: Iterable[str]) -> dict[str, str]:
    """Return host -> the name that ssh's configuration gives it, which ssh's messages have.

    Hosts are asked as by `unreachable`, but this starts no connection. A host is left out if ssh
    does not answer.
    """
    names: dict[str, str] = {}

    async def ask(host: str) -> str | None:
        if (name := await _configured_name(host)) is not None:
            names[host] = name
        return None

    await _each(hosts, ask)
    return names


async def _configured_name(host: str) -> str | None:
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
        await killed(process)
    lines = stdout.decode(errors="replace").splitlines()
    return next((line.split()[1] for line in lines if line.startswith("hostname ")), None)


async def unresolved(hosts: Iterable[str]) -> list[str]:
    """Return the hosts whose names the resolver does not know, be they aliases of ssh's or not."""
    names = [host for host in dict.fromkeys(hosts) if not is_local(host)]
    known = await asyncio.gather(*map(_resolves, names))
    return [host for host, found in zip(names, known, strict=True) if not found]


async def _trouble(host: str) -> str | None:
    ssh = await _ssh_trouble(host)
    return None if ssh is None else await reason(host, ssh)


async def reason(host: str, ssh: str) -> str:
    """Return why ssh cannot reach a host, in few words, where ssh itself has said so much.

    A name may be an alias of ssh's configuration, so the resolver decides only where ssh has told
    of a name or of nothing.
    """
    silent = ssh.startswith(("exit status", "ssh ended"))
    of_name = "resolve hostname" in ssh.lower()
    return UNKNOWN_NAME if (silent or of_name) and not await _resolves(host) else ssh


async def _resolves(host: str) -> bool:
    try:
        await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return True


async def _ssh_trouble(host: str, command: str = "true") -> str | None:
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
        await killed(process)
    if process.returncode == 0:
        return None
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else f"ssh ended with status {process.returncode}"
