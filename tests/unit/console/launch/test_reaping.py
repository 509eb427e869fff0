"""Tests of waiting for child processes, even if the task is cancelled repeatedly."""

import asyncio
import signal
import sys

import pytest

from spbench.launch.reaping import kill_and_wait, wait_for_exit

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
SLOW_END = [
    *(sys.executable, "-u", "-c"),
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), exit(3)))\n"
    "print('ready')\n"
    "time.sleep(60)",
]


async def start_process(argv):
    return await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)


async def test_running_process_is_killed():
    process = await start_process(SLEEPER)
    await kill_and_wait(process)
    assert process.returncode == -signal.SIGKILL
    await kill_and_wait(process)  # an ended process is ignored


@pytest.mark.slow
async def test_cancelled_task_waits_for_its_child():
    process = await start_process(SLOW_END)
    await process.stdout.readline()
    process.terminate()
    task = asyncio.create_task(wait_for_exit(process))
    for _ in range(3):
        await asyncio.sleep(0.05)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.returncode == 3


async def test_waiting_for_a_child_is_limited():
    process = await start_process(SLEEPER)
    task = asyncio.create_task(wait_for_exit(process, timeout_seconds=0.2))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.returncode is None
    await kill_and_wait(process)
