"""Runs of the real `spbench` command, and programs on ranks without it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from spbench.engine.processes import find_processes
from support.paths import PROGRAMS, ROOT, TESTS

SPBENCH = str(Path(sys.executable).parent / "spbench")


def build_script_head(*options: str) -> str:
    """Return the first lines of a script that this Python runs.

    A `#!` line takes no path with a space. The shell runs the second line as a command, and Python
    reads the second and third lines as a string.
    """
    command = shlex.join([sys.executable, *options])
    return f"#!/bin/sh\n'''exec' {command} \"$0\" \"$@\"\n'''\n"


@dataclass
class RunResult:
    """The results of `spbench run`: its exit code, output, events and report."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    home: Path
    report_path: Path

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.report_path.read_text())

    @property
    def statuses(self) -> dict[str, str]:
        return {case["id"]: case["status"] for case in self.report["cases"]}

    def case(self, name: str) -> dict[str, Any]:
        return next(case for case in self.report["cases"] if case["id"] == name)

    @property
    def events(self) -> list[dict[str, Any]]:
        (folder,) = (self.home / "runs").iterdir()
        lines = (folder / "events.jsonl").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def assert_no_process_left(self) -> None:
        """Check that no process of the run is left in the process table."""
        for folder in (self.home / "runs").iterdir():
            assert find_processes(folder.name) == []

    def assert_no_event_missing(self) -> None:
        """Check that the log has all events of each rank: ``seq`` counts up from 0."""
        last_seqs: dict[tuple[int, int | None, int], int] = {}
        pids: dict[tuple[int, int | None], int] = {}
        for event in self.events:
            if "seq" not in event:
                continue
            key = (event["job"], event["rank"])
            if event["event"] == "hello":
                pids[key] = event["pid"]
            source = (*key, pids[key])
            assert event["seq"] == last_seqs.get(source, -1) + 1
            last_seqs[source] = event["seq"]
        assert last_seqs


_processes: list[RunProcess] = []


def kill_leftovers() -> None:
    """End the processes that a failed test has left running."""
    while _processes:
        run = _processes.pop()
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()
        for folder in run.home.glob("runs/*"):
            for pid in find_processes(folder.name):
                os.kill(pid, signal.SIGKILL)


class RunProcess:
    """A process of `spbench run`."""

    def __init__(
        self,
        *arguments: str,
        home: Path,
        env: dict[str, str] | None = None,
        spbench: str | None = None,
        report_path: Path | None = None,
    ) -> None:
        self.home = home
        self.report_path = report_path or home.parent / f"{home.name}.json"
        self.start_time = time.monotonic()
        _processes.append(self)
        options = ("--headless", "--json", str(self.report_path), "--home", str(home))
        self.process = subprocess.Popen(
            [spbench or SPBENCH, "run", *arguments, *options],
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def folder(self) -> Path:
        (folder,) = (self.home / "runs").iterdir()
        return folder

    def wait_for(self, kind: str, limit: float = 40.0, **fields: Any) -> dict[str, Any]:
        """Wait for a recorded event of a kind with these fields, and return it."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            for path in self.home.glob("runs/*/events.jsonl"):
                for line in path.read_bytes().split(b"\n")[:-1]:
                    event = json.loads(line)
                    if event["event"] == kind and fields.items() <= event.items():
                        return event
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)
        raise AssertionError(f"no {kind} event with {fields} in {limit} s")

    def wait_for_timing(self) -> Self:
        """Wait until the ranks measure."""
        self.wait_for("progress", phase="timing")
        return self

    def find_pid(self, rank: int) -> int:
        return int(self.wait_for("ready", rank=rank)["pid"])

    def check_rank_kill(self, rank: int, host: str) -> RunResult:
        """Kill a rank of ``long.yaml``; check its name and that the next case runs."""
        os.kill(self.wait_for_timing().find_pid(rank), signal.SIGKILL)
        result = self.wait()
        assert result.code == 4, result.stdout + result.stderr
        assert result.statuses == {"long": "error", "after": "passed"}
        assert f"rank {rank} on {host}" in result.case("long")["reason"]
        assert "signal 9" in result.case("long")["reason"]
        return result

    def check_cancelled(self) -> RunResult:
        """Wait for the end of an interrupted run of ``long.yaml``, and check its statuses."""
        result = self.wait()
        assert result.code == 130, result.stdout + result.stderr
        assert result.statuses == {"long": "cancelled", "after": "cancelled"}
        return result

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def wait(self, limit: float = 100.0) -> RunResult:
        stdout, stderr = self.process.communicate(timeout=limit)
        seconds = time.monotonic() - self.start_time
        return RunResult(
            self.process.returncode, stdout, stderr, seconds, self.home, self.report_path
        )


class TerminalRunProcess(RunProcess):
    """A run on its own terminal, which a test can close."""

    def __init__(self, *arguments: str, home: Path) -> None:
        self.home = home
        self.report_path = home.parent / f"{home.name}.json"
        self.start_time = time.monotonic()
        self._errors = home.parent / f"{home.name}.err"
        self._master, slave = pty.openpty()
        _processes.append(self)
        options = ("--json", str(self.report_path), "--home", str(home))
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [SPBENCH, "run", *arguments, *options],
                text=True,
                cwd=ROOT,
                env={**os.environ, "CI": "", "TERM": "xterm"},
                stdin=slave,
                stdout=slave,
                stderr=errors,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        os.close(slave)
        self._output = b""
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Read the output like a terminal does, or the run would block on a full buffer."""
        while not self._closing.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                self._output += os.read(self._master, 1 << 16)

    def close_terminal(self) -> None:
        """Close the terminal, like a user who closes its window."""
        self._closing.set()
        self._reader.join()
        os.close(self._master)

    def wait(self, limit: float = 100.0) -> RunResult:
        self.process.wait(timeout=limit)
        seconds = time.monotonic() - self.start_time
        output = self._output.decode(errors="replace")
        errors = self._errors.read_text()
        return RunResult(
            self.process.returncode, output, errors, seconds, self.home, self.report_path
        )


def run(
    *arguments: str, home: Path, env: dict[str, str] | None = None, limit: float = 100.0
) -> RunResult:
    """Run a suite, and return the results."""
    return RunProcess(*arguments, home=home, env=env).wait(limit)


def read_parent_pid(pid: int) -> int:
    """Return the pid of the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run_python(program: str, *arguments: str) -> str:
    """Run Python code in the repository; return its output."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout


def build_python_path() -> str:
    """Return a PYTHONPATH with which a program can import `support` and `standins`."""
    return f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)


def find_program(name: str) -> str | None:
    """Return the path of a program; this Python's environment comes first."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def run_on_ranks(
    ranks: int, *program: str, seconds: float = 280, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks of this host, without spbench's controller."""
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # The same settings as the controller's for ranks of this host.
    defaults = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi,openib,uct", "OMP_NUM_THREADS": "1"}
    defaults["PYTHONPATH"] = build_python_path()
    # A new folder, because a job of another test may have the same number (docs/launching.md).
    with tempfile.TemporaryDirectory(prefix="spbench-tests-", dir="/dev/shm") as segments:
        defaults["OMPI_MCA_btl_sm_backing_directory"] = segments
        mpirun_process = subprocess.Popen(
            [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable, "-m", "mpi4py", *program],
            env=os.environ | as_root | defaults | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = mpirun_process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not done after {seconds:.0f} s:\n{end_with_stacks(mpirun_process)}")
        finally:
            mpirun_process.kill()
        return subprocess.CompletedProcess(
            mpirun_process.args, mpirun_process.returncode, stdout, stderr
        )


def end_with_stacks(mpirun: subprocess.Popen[str]) -> str:
    """End a job that takes too long; return its output, with the stack of each rank."""
    mpirun.send_signal(signal.SIGUSR1)  # mpirun passes it on to support/rank_cases.py
    time.sleep(5)
    mpirun.terminate()
    try:
        return "\n".join(mpirun.communicate(timeout=10))
    except subprocess.TimeoutExpired as error:
        return f"{error.stdout!r}\n{error.stderr!r}"


def run_cases_on_ranks(
    ranks: int, program: str | Path, folder: Path, cases: Any = None, *, seconds: float = 280
) -> Any:
    """Run a program of `PROGRAMS`, or a path, on ranks; return results of the cases."""
    case_file = folder / "cases.json"
    result_file = folder / "results.json"
    files = [str(result_file)]
    if cases is not None:
        case_file.write_text(json.dumps(cases))
        files = [str(case_file), str(result_file)]
    # There are more ranks than cores: ranks that wait for a message yield.
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    process = run_on_ranks(ranks, str(PROGRAMS / program), *files, seconds=seconds, **yielding)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(result_file.read_text())
