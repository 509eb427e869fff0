"""Ending the processes of a run on this host."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from spbench.engine import processes
from spbench.engine.processes import end_processes, find_processes
from spbench.errors import FailedRunError

RUN = "20260101-000000-unit-processes"
IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


@pytest.fixture
async def start():
    """Return a function that starts a launcher and waits for its first line."""
    started = []

    async def start(code):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            env=os.environ | {"SPBENCH_RUN": RUN},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        await process.stdout.readline()
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure_end(process, grace, kill_now=None):
    started = time.monotonic()
    await end_processes(process, RUN, grace, kill_now or asyncio.Event())
    return time.monotonic() - started


async def test_process_that_ends_on_sigterm_is_not_waited_for_longer(start):
    process = await start("import time; print(flush=True); time.sleep(60)")
    assert find_processes(RUN) == [process.pid]
    assert await measure_end(process, 5.0) < 2.0
    assert find_processes(RUN) == []


@pytest.mark.slow
async def test_process_that_ignores_sigterm_is_killed_after_the_grace(start):
    process = await start(IGNORES_SIGTERM)
    assert 0.5 <= await measure_end(process, 0.5) < 2.0
    assert process.returncode == -9


async def test_kill_request_ends_the_grace_period(start):
    process = await start(IGNORES_SIGTERM)
    kill_now = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, kill_now.set)
    assert await measure_end(process, 30.0, kill_now) < 3.0
    assert find_processes(RUN) == []


async def test_reports_processes_that_survive_sigkill(start, monkeypatch):
    process = await start("import time; print(flush=True); time.sleep(60)")
    monkeypatch.setattr(processes, "find_processes", lambda run_id: [2**22 + 1, 2**22 + 2])
    with pytest.raises(FailedRunError) as caught:
        await end_processes(process, RUN, 0.0, asyncio.Event(), kill_seconds=0.2)
    assert str(caught.value).startswith(
        f"processes {2**22 + 1}, {2**22 + 2} do not end 0.2 s after SIGKILL: "
    )
    assert "\n" not in str(caught.value)
