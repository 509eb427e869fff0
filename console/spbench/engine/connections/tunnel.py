"""Tunnels by ssh from a port of each host's loopback to the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from spbench.engine.connections.endpoint import LOOPBACK
from spbench.errors import MissingError
from spbench.launch.reaping import wait_for_exit
from spbench.launch.survey.progress import Progress, ignore_progress, report_progress
from spbench.launch.survey.reach import SSH

MAX_CONCURRENT = 32
"""Tunnels that are opened at the same time."""
OPEN_TIMEOUT = 10.0
"""Seconds in which a tunnel must be open."""
# A user's shared connection (ControlMaster) would keep the tunnel open after the job.
OPTIONS = (
    *("-T", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"),
    *("-o", "ServerAliveInterval=5"),
)
OPEN_MESSAGE = "spbench: tunnel open"
"""Printed by the host after the forwarding. Then it waits for the end of its standard input."""
_MAX_HOSTS = 4


class Tunnels:
    """The tunnels of one job.

    Each ends with this process, because its host reads from it.
    """

    def __init__(self) -> None:
        self._open: list[asyncio.subprocess.Process] = []

    async def open(
        self, hosts: Iterable[str], port: int, progress: Progress = ignore_progress
    ) -> None:
        """Open a tunnel on each host; ``progress`` takes a line every second.

        Raises:
            MissingError: The message names hosts without a tunnel, and the reasons.
        """
        opening_slots = asyncio.Semaphore(MAX_CONCURRENT)
        hosts = tuple(dict.fromkeys(hosts))

        async def open_tunnel(host: str) -> str | None:
            async with opening_slots:
                reason = await self._open_tunnel(host, port)
            counts.count(succeeded=reason is None)
            return reason

        async with report_progress(len(hosts), progress, "opening tunnels") as counts:
            reasons = await asyncio.gather(*map(open_tunnel, hosts))
        failures = [
            f"{host}: {reason}" for host, reason in zip(hosts, reasons, strict=True) if reason
        ]
        if failures:
            await self.close()
            hidden = len(failures) - _MAX_HOSTS
            more = f" and {hidden} more" if hidden > 0 else ""
            raise MissingError(
                f"no ssh tunnel (launch.tunnel) to {'; '.join(failures[:_MAX_HOSTS])}{more}; sshd "
                "there must allow TCP forwarding"
            )

    async def _open_tunnel(self, host: str, port: int) -> str | None:
        """Open a tunnel; return the reason if that fails."""
        forwarding = f"{LOOPBACK}:{port}:{LOOPBACK}:{port}"
        try:
            process = await asyncio.create_subprocess_exec(
                *SSH,
                *OPTIONS,
                "-R",
                forwarding,
                host,
                f"echo '{OPEN_MESSAGE}'; exec cat",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"{SSH[0]} cannot run: {error.strerror}"
        self._open.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(OPEN_TIMEOUT):
                # a login shell may print a banner first
                while line := await process.stdout.readline():
                    if line.decode(errors="replace").strip() == OPEN_MESSAGE:
                        return None
                errors = (await process.stderr.read()).decode(errors="replace")
        except TimeoutError:
            return f"not open after {OPEN_TIMEOUT:g} s"
        lines = errors.strip().splitlines()
        return lines[-1].strip() if lines else "ssh ended without an error message"

    async def close(self) -> None:
        """End all tunnels."""
        for process in self._open:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._open:
            await wait_for_exit(process)
        self._open.clear()
