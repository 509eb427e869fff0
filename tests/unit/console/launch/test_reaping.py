"""Child processes are waited for, however often the task that has them is cancelled."""

import asyncio
import signal
import sys

import pytest

from spbench.launch import reaping
from spbench.launch.reaping import kill_and_wait, wait_for_exit

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
SLOW_END = [
    *(sys.executable, "-u", "-c"),
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), exit(3)))\n"
    "print('ready')\n"
    "time.sleep(60)",
]


async def started(argv):
    return await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)


async def test_a_process_that_runs_is_killed():
    process = await started(SLEEPER)
    await kill_and_wait(process)
    assert process.returncode == -signal.SIGKILL
    await kill_and_wait(process)  # and one that has ended is left alone


async def test_a_task_that_is_cancelled_again_and_again_ends_when_its_child_has():
    process = await started(SLOW_END)
    await process.stdout.readline()
    process.terminate()
    task = asyncio.create_task(wait_for_exit(process))
    for _ in range(3):
        await asyncio.sleep(0.05)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.returncode == 3


async def test_a_child_that_does_not_end_is_left_after_a_while(monkeypatch):
    monkeypatch.setattr(reaping, "EXIT_TIMEOUT", 0.2)
    process = await started(SLEEPER)
    task = asyncio.create_task(wait_for_exit(process))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.returncode is None
    await kill_and_wait(process)
