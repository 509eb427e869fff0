"""Waiting for child processes to exit, also if the waiting task is cancelled."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress

EXIT_TIMEOUT = 5.0
"""Seconds after which a killed child is given up: the kernel may hold it in a system call."""


async def kill_and_wait(process: Process) -> None:
    """Kill a process that still runs, and wait for its exit."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await wait_for_exit(process)


async def wait_for_exit(process: Process, *, timeout_seconds: float = EXIT_TIMEOUT) -> None:
    """Wait for the exit of a process that was terminated or killed.

    If the waiting task is cancelled, it still waits until the child has exited or
    ``timeout_seconds`` are over, and raises the cancellation then. When its loop closes, asyncio
    cancels a cancelled task again, and the child would become a zombie.
    """
    clock = asyncio.get_running_loop().time
    cancelled = False
    deadline = clock() + timeout_seconds

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
