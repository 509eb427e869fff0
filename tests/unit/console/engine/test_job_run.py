"""A job with a program as launcher that simulates both ranks over connections."""

import os
import re
import sys
from types import SimpleNamespace

import pytest

from spbench.engine.faults.launcher_output import extract_rank_stderr
from spbench.engine.job_run import JobPlan, JobRun
from spbench.engine.processes import find_processes
from spbench.engine.recorder import Recorder
from spbench.launch.detect import load_launcher
from spbench.launch.jobs import Job
from spbench.launch.launcher import Command, LauncherReport
from spbench.launch.mpi_probe import MpiLibrary
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.folder import create_run
from spbench.record.state import RunState
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from support.runs import build_python_path
from support.sample_events import describe_case, run_start

RANKS = """
import os, socket, sys, time
from support.sample_events import RANK_EVENTS
from spbench_workers.channel.opening import open_channel

ERROR = {"message": "ValueError: no", "traceback": "Traceback ..."}
INTERRUPT = {"message": "KeyboardInterrupt", "traceback": "Traceback ..."}


def connect(rank):
    socket.gethostname = f"node0{rank + 1}".format
    channel = open_channel({**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": "2"})
    channel.send("ready", **RANK_EVENTS["ready"])
    return channel


def start(channel, case):
    channel.send("case_start", case=case, repeat=0)


def end(channel, case, **fields):
    channel.send("case_end", case=case, repeat=0, **{"status": "ok", **fields})


first, second = connect(0), connect(1)
first.receive_cases()
"""
"""Two connected ranks with their cases; each test appends the rest of the program."""

BOTH_CASES = """
for case in 'ab':
    for rank in (first, second): start(rank, case)
    for rank in (first, second): end(rank, case)
"""


@pytest.fixture
def run_job(tmp_path):
    """Return a function that runs a job of cases a and b with a program of its ranks."""

    async def run_job(program, parse_output=lambda _: LauncherReport()):
        settings = LaunchSettings()
        params = BENCHMARKS["link.pingpong"].complete({})
        cases = [Case(n, n, "link.pingpong", params, 2, 1, (), settings, 1) for n in ("a", "b")]
        plan = JobPlan(
            Job(1, tuple(cases), 2, settings), None, launch(program, parse_output), os.environ
        )
        folder = create_run(tmp_path, "unit")
        log = EventLog(folder.events)
        state = RunState()
        recorder = Recorder(log, state, lambda event: None)
        opening = run_start(*(describe_case(name, checks=[]) for name in ("a", "b")))
        del opening["time"]
        recorder.record(opening.pop("event"), **opening)
        fault = await JobRun(plan, folder, recorder).run()
        log.close()
        assert find_processes(folder.id) == []
        return fault, {name: case.status for name, case in state.cases.items()}

    def launch(program, parse_output):
        env = os.environ | {"PYTHONPATH": build_python_path()}
        command = Command((sys.executable, "-c", RANKS + program), env)
        return SimpleNamespace(
            command=command,
            launcher=SimpleNamespace(name="played", parse_output=parse_output, helper=None),
            version="1",
            library=MpiLibrary("played", "played"),
            hostfile_text=None,
            spec=SimpleNamespace(oversubscribed=False, rank_env={}, hidden_env={}),
            requested_placement={},
        )

    return run_job


@pytest.mark.slow
async def test_ranks_that_end_cases_and_send_bye_leave_no_fault(run_job):
    fault, statuses = await run_job(f"{BOTH_CASES}first.close()\nsecond.close()\n")
    assert fault is None
    assert statuses == {"a": "passed", "b": "passed"}


@pytest.mark.slow
async def test_reads_events_of_other_ranks_after_an_error(run_job):
    fault, statuses = await run_job(
        "for rank in (first, second): start(rank, 'a')\n"
        "end(second, 'a')\n"
        "start(second, 'b')\n"
        "end(second, 'b', status='error', error=ERROR)\n"
        "time.sleep(0.3)\n"
        "end(first, 'a')\n"
        "os._exit(1)\n"
    )
    assert fault.case == "b"
    assert fault.message.endswith("into b: ValueError: no")
    assert statuses == {"a": "passed", "b": "running"}


@pytest.mark.slow
async def test_rank_that_ends_without_bye_is_a_fault(run_job, messages):
    fault, statuses = await run_job(f"{BOTH_CASES}first.close()\nos._exit(0)\n")
    assert fault.status == "error"
    assert fault.rank == 1
    messages.check(fault.message)
    assert statuses == {"a": "passed", "b": "passed"}


SSH_LINE = "sys.stderr.write('Connection to node02 closed by remote host.\\r\\n')\n"
RANK_LINE = "end(first, 'a', status='error', error=INTERRUPT)\n"


def hide_times(message):
    """Replace measured times, which depend on the load of this machine."""
    return re.sub(r"\b\d+\.\d s", "T s", message)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [(SSH_LINE, RANK_LINE), (RANK_LINE, SSH_LINE)], ids=["ssh first", "rank first"]
)
async def test_lost_host_is_the_cause_in_any_order_of_messages(run_job, order, messages):
    fault, statuses = await run_job(
        "for rank in (first, second): start(rank, 'a')\n"
        f"{order[0]}sys.stderr.flush()\ntime.sleep(0.7)\n{order[1]}sys.stderr.flush()\n"
        "time.sleep(60)\n",
        load_launcher("mpirun_rsh").parse_output,
    )
    assert (fault.status, fault.rank, fault.traceback) == ("error", 1, None)
    messages.check(hide_times(fault.message))
    first, _, consequence = fault.message.partition("; as a consequence ")
    assert first.endswith(
        "the launcher lost its connection to this host: Connection to node02 closed by remote host"
    )
    messages.check(hide_times(consequence))
    assert statuses["a"] == "running"


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (
            "spbench: no console at 10.0.0.1:7: start ranks through spbench\n",
            "ranks cannot reach the console at 10.0.0.1:7: check firewalls and routes",
        ),
        (
            "bash: line 1\nspbench: setup line failed: module load x\n",
            "setup line failed: module load x",
        ),
        ("MPI_ABORT was invoked\n", None),
    ],
)
def test_extracts_the_reason_from_stderr_of_ranks(stderr, expected):
    assert extract_rank_stderr(stderr) == expected
