"""Reaping of child processes: a child that was told to end is waited for, whatever happens."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress


async def killed(process: Process) -> None:
    """Kill a process that still runs, and wait for its end."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await reaped(process)


async def reaped(process: Process) -> None:
    """Wait for the end of a process that was told to end.

    A task that is cancelled is cancelled again when its loop closes; the child would then be left
    for the system to collect. So a cancellation is raised when the child has ended.
    """
    cancelled = False
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
