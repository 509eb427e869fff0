"""Tunnels by ssh: a port of each host's loopback that leads to the collector here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from spbench.engine.connections.endpoint import LOOPBACK
from spbench.errors import MissingError
from spbench.launch.reaping import wait_for_exit
from spbench.launch.survey.progress import Progress, ignore_progress, report_progress
from spbench.launch.survey.reach import SSH

AT_ONCE = 32
"""Tunnels that are opened at the same time."""
PATIENCE = 10.0
"""Seconds in which a tunnel must be open."""
# a shared connection of the user's (ControlMaster) would keep the tunnel after its job
OPTIONS = (
    *("-T", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"),
    *("-o", "ServerAliveInterval=5"),
)
UP = "spbench: tunnel open"
"""The host's own word, after the forwarding; then it waits for the end of its standard input."""


class Tunnels:
    """The tunnels of one job; each ends with this process, since its host reads from it."""

    def __init__(self) -> None:
        self._open: list[asyncio.subprocess.Process] = []

    async def open(self, hosts: Iterable[str], port: int, say: Progress = ignore_progress) -> None:
        """Open a tunnel on each host; ``say`` takes a line a second while it lasts.

        Raises:
            MissingError: naming a host that has none, and why.
        """
        slots = asyncio.Semaphore(AT_ONCE)

        hosts = tuple(dict.fromkeys(hosts))

        async def one(host: str) -> str | None:
            async with slots:
                reason = await self._dig(host, port)
            asked.count(well=reason is None)
            return reason

        async with report_progress(len(hosts), say, "opening tunnels") as asked:
            reasons = await asyncio.gather(*map(one, hosts))
        wrong = [f"{host}: {why}" for host, why in zip(hosts, reasons, strict=True) if why]
        if wrong:
            await self.close()
            more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
            raise MissingError(
                f"no ssh tunnel (launch.tunnel) to {'; '.join(wrong[:4])}{more}; sshd there must "
                "allow TCP forwarding"
            )

    async def _dig(self, host: str, port: int) -> str | None:
        """Open one; return why it is not."""
        there = f"{LOOPBACK}:{port}:{LOOPBACK}:{port}"
        try:
            process = await asyncio.create_subprocess_exec(
                *SSH,
                *OPTIONS,
                "-R",
                there,
                host,
                f"echo '{UP}'; exec cat",
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
            async with asyncio.timeout(PATIENCE):
                # a shell there may greet first
                while line := await process.stdout.readline():
                    if line.decode(errors="replace").strip() == UP:
                        return None
                said = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        except TimeoutError:
            return f"not open after {PATIENCE:g} s"
        return said[-1].strip() if said else "ssh ended without an error message"

    async def close(self) -> None:
        """End all tunnels."""
        for process in self._open:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._open:
            await wait_for_exit(process)
        self._open.clear()
