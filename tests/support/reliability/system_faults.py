"""Faults of the system: files, limits, memory, clocks, unknown connections."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from spbench.engine.processes import find_processes
from support.cluster.requirements import MissingRequirementError
from support.paths import STANDINS
from support.processes import read_collector_addresses
from support.reliability.trial import FAULTS_SUITE, LONG, MEDIUM, FaultTrial
from support.runs import SPBENCH, RunResult

MEMORY = Path("/sys/fs/cgroup/memory")
CLOCK = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
GEMM = """\
schema: spbench.suite/1
name: gemm
launch: {timeout: 60}
cases:
  - {name: large, benchmark: compute.gemm, np: 2, params: {n: 2048, iterations: 500}}
  - {name: after, benchmark: compute.gemm, np: 2, params: {n: 64, iterations: 5}}
"""
NUMBER = "${OMPI_COMM_WORLD_RANK-}${PMI_RANK-}${MV2_COMM_WORLD_RANK-}"


def remove_home(trial: FaultTrial) -> RunResult:
    """Remove the home of a run."""
    trial.start(LONG)
    trial.wait_until_timing()
    trial.fault_time = time.monotonic()
    shutil.rmtree(trial.run.home)
    return trial.wait()


def mount_home(options: str) -> Callable[[FaultTrial], RunResult]:
    """Run a suite with its home on a file system with these mount options."""

    def act(trial: FaultTrial) -> RunResult:
        home = trial.folder / "home"
        home.mkdir()
        with ExitStack() as stack:
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(home)], check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(home)], check=False)
            trial.start(FAULTS_SUITE)
            return trial.wait()

    return act


def block_report(trial: FaultTrial) -> RunResult:
    """Create a folder with the name of the report."""
    trial.start(MEDIUM)
    trial.wait_until_timing()
    (trial.run.folder / "report.json").mkdir()
    trial.fault_time = time.monotonic()
    return trial.wait()


def wrap_command(
    before: str, after: str = "", suite: str = FAULTS_SUITE
) -> Callable[[FaultTrial], RunResult]:
    """Run a suite from a shell script, with text before and after the command."""

    def act(trial: FaultTrial) -> RunResult:
        command = trial.folder / "spbench"
        command.write_text(f'#!/bin/sh\n{before}\nexec {SPBENCH} "$@" {after}\n')
        command.chmod(0o755)
        trial.start(suite, spbench=str(command))
        return trial.wait()

    return act


def pause_process(pause_rank: bool, seconds: float) -> Callable[[FaultTrial], RunResult]:
    """Stop the victim or the controller for some seconds; the run continues."""

    def act(trial: FaultTrial) -> RunResult:
        trial.start(MEDIUM)
        victim = trial.wait_until_timing()
        pid = victim if pause_rank else trial.testbed.find_controller_pid(trial.run)
        trial.inject_signal(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        return trial.wait()

    return act


def shift_clock(trial: FaultTrial) -> RunResult:
    """Set the clock of rank 1 an hour ahead."""
    if not CLOCK.exists():
        raise MissingRequirementError("libfaketime is not installed")
    trial.victim = 1
    variables = f"LD_PRELOAD={CLOCK} FAKETIME=+3600s"
    trial.start(
        FAULTS_SUITE, "--set", f"launch.setup=['[ \"{NUMBER}\" != 1 ] || export {variables}']"
    )
    return trial.wait()


def limit_memory(trial: FaultTrial) -> RunResult:
    """Limit a rank to 8 MiB before it allocates matrices: the kernel kills it."""
    trial.start(GEMM)
    pid = trial.find_pid(trial.victim)
    with _create_memory_group(trial.run.folder.name, 8 << 20) as group:
        trial.fault_time = time.monotonic()
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))
        return trial.wait()


@contextmanager
def _create_memory_group(name: str, limit: int) -> Iterator[Path]:
    group = MEMORY / name
    try:
        group.mkdir()
    except OSError as error:
        raise MissingRequirementError(f"no cgroup of memory can be made: {error}") from error
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        _remove_group(group)


def _remove_group(group: Path) -> None:
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def connect_unauthenticated(trial: FaultTrial) -> RunResult:
    """Open 400 silent connections, and one that sends a wrong token."""
    trial.start(MEDIUM)
    address = read_collector_addresses(trial.wait_until_timing())[0]
    trial.fault_time = time.monotonic()
    hello = b'{"event":"hello","rank":0,"seq":0,"time":0,"token":"wrong","host":"x","pid":1}\n'
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(address))
        stack.enter_context(socket.create_connection(address)).sendall(hello)
        return trial.wait()


def flood_launcher_output(trial: FaultTrial) -> RunResult:
    """Make the launcher print 100 MB before it starts ranks."""
    launcher = trial.folder / "bin" / "mpirun_rsh"
    launcher.parent.mkdir()
    launcher.write_text(
        "#!/bin/sh\ncase \"$*\" in *-np*) yes 'line of the launcher' | head -c 100000000;; esac\n"
        f'exec {STANDINS}/mpirun_rsh "$@"\n'
    )
    launcher.chmod(0o755)
    path = f"{launcher.parent}:{dict(trial.testbed.env)['PATH']}"
    trial.start(FAULTS_SUITE, env={"PATH": path})
    return trial.wait()


def kill_relay(trial: FaultTrial) -> RunResult:
    """Kill the relay that forwards the events of all ranks."""
    trial.start(LONG, "--set", "launch.fan_in=node")
    trial.wait_until_timing()
    pids = find_processes(trial.run.folder.name)
    relay = next(pid for pid in pids if b"relay" in Path(f"/proc/{pid}/cmdline").read_bytes())
    trial.inject_signal(relay, signal.SIGKILL)
    return trial.wait()


def hide_workers(trial: FaultTrial) -> RunResult:
    """Hide the package of the workers from rank 1 only."""
    trial.victim = 1
    (trial.folder / "hidden").mkdir()
    (trial.folder / "hidden/sitecustomize.py").write_text(
        "import sys\nsys.modules['spbench_workers'] = None\n"
    )
    line = f'[ "{NUMBER}" != 1 ] || export PYTHONPATH={trial.folder}/hidden'
    trial.start(FAULTS_SUITE, "--set", f"launch.setup=['{line}']")
    result = trial.wait()
    trial.host = socket.gethostname()
    return result
