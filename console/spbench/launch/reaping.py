"""Reaping of child processes: a child that was told to end is waited for, cancelled or not."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress

PATIENCE = 5.0
"""Seconds after which a child is left that does not end: the kernel may hold it in a call."""


async def killed(process: Process) -> None:
    """Kill a process that still runs, and wait for its end."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await reaped(process)


async def reaped(process: Process) -> None:
    """Wait for the end of a process that was told to end.

    A task that is cancelled is cancelled again when its loop closes; the child would then be left
    for the system to collect. So a cancellation is raised when the child has ended, or after
    `PATIENCE`.
    """
    clock = asyncio.get_running_loop().time
    cancelled = False
    deadline = clock() + PATIENCE
    while process.returncode is None and clock() < deadline:
        try:
            async with asyncio.timeout_at(deadline):
                await process.wait()
        except TimeoutError:
            break
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
