"""Faults of what a run stands on: files, limits, memory, clocks, and who else connects."""

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
from support.cluster.isolated_controller import read_collector_hosts
from support.cluster.requirements import MissingRequirementError
from support.paths import STANDINS, TEST_SUITES
from support.reliability.trial import LONG, MEDIUM, Trial
from support.runs import SPBENCH, RunResult

FAULTS_SUITE = (TEST_SUITES / "faults.yaml").read_text()
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


def remove_home(trial: Trial) -> RunResult:
    """Remove the home of a run."""
    trial.start(LONG)
    trial.wait_until_timing()
    trial.fault_time = time.monotonic()
    shutil.rmtree(trial.run.home)
    return trial.wait()


def mount_home(options: str) -> Callable[[Trial], RunResult]:
    """Run a suite with a home on a file system that is mounted with these options."""

    def act(trial: Trial) -> RunResult:
        home = trial.folder / "home"
        home.mkdir()
        with ExitStack() as stack:
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(home)], check=True)
            stack.callback(subprocess.run, ["umount", "-l", str(home)], check=False)
            trial.start(FAULTS_SUITE)
            return trial.wait()

    return act


def block_report(trial: Trial) -> RunResult:
    """Put a folder where the report goes."""
    trial.start(MEDIUM)
    trial.wait_until_timing()
    (trial.run.folder / "report.json").mkdir()
    trial.fault_time = time.monotonic()
    return trial.wait()


def wrap_command(
    before: str, after: str = "", suite: str = FAULTS_SUITE
) -> Callable[[Trial], RunResult]:
    """Run a suite by a shell line: what stands before spbench, and behind its arguments."""

    def act(trial: Trial) -> RunResult:
        command = trial.folder / "spbench"
        command.write_text(f'#!/bin/sh\n{before}\nexec {SPBENCH} "$@" {after}\n')
        command.chmod(0o755)
        trial.start(suite, spbench=str(command))
        return trial.wait()

    return act


def pause_process(rank: bool, seconds: float) -> Callable[[Trial], RunResult]:
    """Stop the victim, or the console, for some seconds; the run goes on."""

    def act(trial: Trial) -> RunResult:
        trial.start(MEDIUM)
        victim = trial.wait_until_timing()
        pid = victim if rank else trial.testbed.find_controller_pid(trial.run)
        trial.inject_signal(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        return trial.wait()

    return act


def shift_clock(trial: Trial) -> RunResult:
    """Put the clock of rank 1 an hour ahead."""
    if not CLOCK.exists():
        raise MissingRequirementError("libfaketime is not installed")
    trial.victim = 1
    ahead = f"LD_PRELOAD={CLOCK} FAKETIME=+3600s"
    trial.start(FAULTS_SUITE, "--set", f"launch.setup=['[ \"{NUMBER}\" != 1 ] || export {ahead}']")
    return trial.wait()


def limit_memory(trial: Trial) -> RunResult:
    """Leave a rank 8 MiB before it makes its matrices: the kernel kills it."""
    trial.start(GEMM)
    pid = trial.find_pid(trial.victim)
    with _memory(trial.run.folder.name, 8 << 20) as group:
        trial.fault_time = time.monotonic()
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))
        return trial.wait()


@contextmanager
def _memory(name: str, limit: int) -> Iterator[Path]:
    group = MEMORY / name
    try:
        group.mkdir()
    except OSError as error:
        raise MissingRequirementError(f"no cgroup of memory can be made: {error}") from error
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        _leave(group)


def _leave(group: Path) -> None:
    deadline = time.monotonic() + 5
    while group.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def connect_unauthenticated(trial: Trial) -> RunResult:
    """Hold 400 connections without a word, and say a wrong token on another."""
    trial.start(MEDIUM)
    first = read_collector_hosts(trial.wait_until_timing())[0]
    port = int(_port_of(trial.find_pid(0)))
    trial.fault_time = time.monotonic()
    wrong = b'{"event":"hello","rank":0,"seq":0,"time":0,"token":"wrong","host":"x","pid":1}\n'
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection((first, port)))
        stack.enter_context(socket.create_connection((first, port))).sendall(wrong)
        return trial.wait()


def _port_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    told = next(word for word in words if word.startswith("SPBENCH_COLLECTOR="))
    return told.partition("=")[2].split(",")[0].rpartition(":")[2]


def flood_launcher_output(trial: Trial) -> RunResult:
    """Let the launcher print 100 MB before it starts ranks."""
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


def kill_relay(trial: Trial) -> RunResult:
    """Kill the relay that carries the lines of all ranks."""
    trial.start(LONG, "--set", "launch.fan_in=node")
    trial.wait_until_timing()
    words = ((pid, Path(f"/proc/{pid}/cmdline")) for pid in find_processes(trial.run.folder.name))
    relay = next(pid for pid, path in words if b"relay" in path.read_bytes())
    trial.inject_signal(relay, signal.SIGKILL)
    return trial.wait()


def hide_workers(trial: Trial) -> RunResult:
    """Hide spbench's workers from rank 1 alone."""
    trial.victim = 1
    (trial.folder / "hidden").mkdir()
    (trial.folder / "hidden/sitecustomize.py").write_text(
        "import sys\nsys.modules['spbench_workers'] = None\n"
    )
    line = f'[ "{NUMBER}" != 1 ] || export PYTHONPATH={trial.folder}/hidden'
    trial.start(FAULTS_SUITE, "--set", f"launch.setup=['{line}']")
    ended = trial.wait()
    trial.host = socket.gethostname()
    return ended


def patch_ranks(program: str) -> Callable[[Trial], RunResult]:
    """Run a suite whose ranks run a program of Python first."""

    def act(trial: Trial) -> RunResult:
        trial.victim = 1
        trial.host = socket.gethostname()
        (trial.folder / "patch").mkdir()
        (trial.folder / "patch/sitecustomize.py").write_text(program)
        line = f"launch.setup=['export PYTHONPATH={trial.folder}/patch:$PYTHONPATH']"
        trial.start(FAULTS_SUITE, "--set", line)
        return trial.wait()

    return act
