"""Runs of the real `spbench` command, watched from outside."""

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
    """Return the first lines of a program for this Python, wherever that lies.

    A `#!` line takes no path with a space. The shell runs the second line as a command, and Python
    reads the second and third as a string.
    """
    command = shlex.join([sys.executable, *options])
    return f"#!/bin/sh\n'''exec' {command} \"$0\" \"$@\"\n'''\n"


@dataclass
class RunResult:
    """A command that has ended."""

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
        (run,) = (self.home / "runs").iterdir()
        lines = (run / "events.jsonl").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def assert_no_process_left(self) -> None:
        """No process of the run is left in the whole process table."""
        for run in (self.home / "runs").iterdir():
            assert find_processes(run.name) == []

    def assert_no_event_missing(self) -> None:
        """Of each rank's events none is missing from the log: seq counts up from 0."""
        seen: dict[tuple[int, int | None, int], int] = {}
        sources: dict[tuple[int, int | None], int] = {}
        for event in self.events:
            if "seq" not in event:
                continue
            key = (event["job"], event["rank"])
            if event["event"] == "hello":
                sources[key] = event["pid"]
            place = (*key, sources[key])
            assert event["seq"] == seen.get(place, -1) + 1
            seen[place] = event["seq"]
        assert seen


_started: list[RunProcess] = []


def kill_leftovers() -> None:
    """End what a failed test has left running."""
    while _started:
        running = _started.pop()
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()
        for run in running.home.glob("runs/*"):
            for pid in find_processes(run.name):
                os.kill(pid, signal.SIGKILL)


class RunProcess:
    """A run under way."""

    def __init__(
        self,
        *words: str,
        home: Path,
        env: dict[str, str] | None = None,
        spbench: str | None = None,
    ) -> None:
        self.home = home
        self.report_path = home.parent / f"{home.name}.json"
        self.started = time.monotonic()
        _started.append(self)
        words = (*words, "--headless", "--json", str(self.report_path), "--home", str(home))
        self.process = subprocess.Popen(
            [spbench or SPBENCH, "run", *words],
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def folder(self) -> Path:
        (run,) = (self.home / "runs").iterdir()
        return run

    def wait_for(self, kind: str, limit: float = 40.0, **fields: Any) -> dict[str, Any]:
        """Return the first recorded event of that kind with these fields."""
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

    def check_rank_kill(self, rank: int, where: str) -> RunResult:
        """Kill a rank of ``long.yaml``: it is named, and the case after it runs."""
        os.kill(self.wait_for_timing().find_pid(rank), signal.SIGKILL)
        ended = self.wait()
        assert ended.code == 4, ended.stdout + ended.stderr
        assert ended.statuses == {"long": "error", "after": "passed"}
        assert f"rank {rank} on {where}" in ended.case("long")["reason"]
        assert "signal 9" in ended.case("long")["reason"]
        return ended

    def check_cancelled(self) -> RunResult:
        """Wait for the end of a run of ``long.yaml`` that somebody has interrupted."""
        ended = self.wait()
        assert ended.code == 130, ended.stdout + ended.stderr
        assert ended.statuses == {"long": "cancelled", "after": "cancelled"}
        return ended

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def wait(self, limit: float = 100.0) -> RunResult:
        stdout, stderr = self.process.communicate(timeout=limit)
        seconds = time.monotonic() - self.started
        return RunResult(
            self.process.returncode, stdout, stderr, seconds, self.home, self.report_path
        )


class TerminalRunProcess(RunProcess):
    """A run on a terminal of its own, which can be closed under it."""

    def __init__(self, *words: str, home: Path) -> None:
        self.home = home
        self.report_path = home.parent / f"{home.name}.json"
        self.started = time.monotonic()
        self._errors = home.parent / f"{home.name}.err"
        self._master, slave = pty.openpty()
        _started.append(self)
        words = (*words, "--json", str(self.report_path), "--home", str(home))
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [SPBENCH, "run", *words],
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
        self._shown = b""
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Take what is shown, as a terminal does: else the run would wait to show more."""
        while not self._closing.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                self._shown += os.read(self._master, 1 << 16)

    def close_terminal(self) -> None:
        """Close the terminal's window."""
        self._closing.set()
        self._reader.join()
        os.close(self._master)

    def wait(self, limit: float = 100.0) -> RunResult:
        self.process.wait(timeout=limit)
        seconds = time.monotonic() - self.started
        shown = self._shown.decode(errors="replace")
        errors = self._errors.read_text()
        return RunResult(
            self.process.returncode, shown, errors, seconds, self.home, self.report_path
        )


def run(
    *words: str, home: Path, env: dict[str, str] | None = None, limit: float = 100.0
) -> RunResult:
    """Run a suite to its end."""
    return RunProcess(*words, home=home, env=env).wait(limit)


def read_parent_pid(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run_python(program: str, *words: str) -> str:
    """Run a program of Python in the repository; return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout


def build_python_path() -> str:
    """Return what lets a program import what tests share."""
    return f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)


def find_program(name: str) -> str | None:
    """Return the path of a program, from this Python's environment if possible."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def run_on_ranks(
    ranks: int, *program: str, seconds: float = 280, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with mpi4py on ranks of this host, without the console."""
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # As the console starts ranks of this host.
    defaults = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi,openib,uct", "OMP_NUM_THREADS": "1"}
    defaults["PYTHONPATH"] = build_python_path()
    # Not in /dev/shm itself: another test's job may have the same number (docs/launching.md).
    with tempfile.TemporaryDirectory(prefix="spbench-tests-", dir="/dev/shm") as segments:
        defaults["OMPI_MCA_btl_sm_backing_directory"] = segments
        ranks_program = subprocess.Popen(
            [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable, "-m", "mpi4py", *program],
            env=os.environ | as_root | defaults | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = ranks_program.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not done after {seconds:.0f} s:\n{end_with_stacks(ranks_program)}")
        finally:
            ranks_program.kill()
        return subprocess.CompletedProcess(
            ranks_program.args, ranks_program.returncode, stdout, stderr
        )


def end_with_stacks(mpirun: subprocess.Popen[str]) -> str:
    """End a job that takes too long; return what it printed, with the stack of each rank."""
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
    """Run a program, one of `PROGRAMS` or any path, on ranks; return its answers to the cases."""
    wanted = folder / "cases.json"
    said = folder / "results.json"
    files = [str(said)]
    if cases is not None:
        wanted.write_text(json.dumps(cases))
        files = [str(wanted), str(said)]
    # Ranks are more than cores here: those that wait for a message give way.
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    ended = run_on_ranks(ranks, str(PROGRAMS / program), *files, seconds=seconds, **yielding)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(said.read_text())
