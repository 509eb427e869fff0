"""The execution of the steps: environment, time limits, log and results on disk."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from benchmarks.gpu_once.results import (
    SCHEMA,
    Status,
    StepResult,
    collect_machine_facts,
    judge_step,
    read_report,
    render_summary,
)
from benchmarks.gpu_once.steps import FOLDER, Step

ROOT = Path(__file__).resolve().parents[2]
SETUP = Path(".whl/setup")
MIN_STEP_SECONDS = 12.0
"""A step is not started with less time than this."""
REHEARSAL_SECONDS = 240.0
"""The time limit of a step in a rehearsal, where ranks share a few cores."""
CUDA_PROGRAMS = "/usr/local/cuda/bin"
"""The folder of compute-sanitizer in the CUDA toolkit, which may be missing from PATH."""
KILL_SECONDS = 5.0
"""The time from SIGTERM to SIGKILL."""


class Log:
    """A log file with lines that are also written to stdout."""

    def __init__(self, path: Path, started: float) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._started = started

    def write(self, line: str) -> None:
        """Write a line unchanged."""
        self._file.write(line)
        self._file.flush()
        sys.stdout.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write_heading(self, text: str) -> None:
        """Write a heading with the seconds since the start."""
        self.write(f"\n##### {time.monotonic() - self._started:4.0f} s  {text}\n")


class Session:
    """The steps of one command: their environment, time and results.

    Args:
        output: The folder of the results.
        seconds: The time for all steps.
        rehearse: Whether ranks use the stand-in instead of a GPU.
        min_step_seconds: A step is not started with less time than this.
        kill_seconds: The time from SIGTERM to SIGKILL.
    """

    def __init__(
        self,
        output: Path,
        seconds: float,
        *,
        rehearse: bool,
        min_step_seconds: float = MIN_STEP_SECONDS,
        kill_seconds: float = KILL_SECONDS,
    ) -> None:
        self._output = output
        self._min_step_seconds = min_step_seconds
        self._kill_seconds = kill_seconds
        self._seconds = seconds
        self._rehearse = rehearse
        self._started = time.monotonic()
        self._work = Path(tempfile.mkdtemp(prefix="gpu-once-"))
        self._reports = self._work / "reports"
        self._reports.mkdir()
        output.mkdir(parents=True, exist_ok=True)
        self._log = Log(output / "log.txt", self._started)
        self._process: subprocess.Popen[str] | None = None
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(
                (str(Path(sys.executable).parent), os.environ["PATH"], CUDA_PROGRAMS)
            ),
            "SPBENCH_HOME": str(self._work / "home"),
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # spbench sets the same for runs, but some steps start mpirun directly.
            "OMPI_MCA_osc": "^ucx",
            "OMPI_MCA_btl": "^ofi,openib,uct",
        }
        self.results: list[StepResult] = []

    @property
    def remaining(self) -> float:
        """The remaining seconds."""
        return self._seconds - (time.monotonic() - self._started)

    def enter_environment(self) -> None:
        """Source the set-up script of the bundle and use its environment.

        Raises:
            SystemExit: It failed; its output is in the log.
        """
        self._log.write_heading("environment")
        script = f". {SETUP} >&2 && env -0"
        completed = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=self._environment, capture_output=True, text=True
        )
        self._log.write(completed.stderr)
        if completed.returncode:
            raise SystemExit(f"error: {SETUP} failed (help: run --prepare where pip works)")
        pairs = (line.partition("=") for line in completed.stdout.split("\0") if line)
        self._environment = {name: value for name, _, value in pairs}

    def run(self, step: Step) -> StepResult:
        """Run a step within its time and the session's, and save its result."""
        result = self._run(step)
        self.results.append(result)
        line = f"{step.name}: {result.status} after {result.seconds:.0f} s; {result.detail}\n"
        self._log.write(line)
        self.save()
        return result

    def _run(self, step: Step) -> StepResult:
        program = step.needs
        if program and not self._rehearse and not shutil.which(program, path=self._search_path):
            return StepResult(step.name, Status.SKIPPED, 0, f"{program} is not installed")
        limit = REHEARSAL_SECONDS if self._rehearse else step.seconds
        available = self.remaining - self._kill_seconds
        seconds = min(limit, available)
        if available < self._min_step_seconds:
            return StepResult(step.name, Status.SKIPPED, 0, "no time is left")
        report = self._reports / f"{step.name}.json"
        command = self._build_command(step, seconds, report)
        command_line = shlex.join(command).partition("\n")[0]
        self._log.write_heading(f"{step.name}, at most {seconds:.0f} s: {command_line}")
        started = time.monotonic()
        exit_code = self._execute(command, self._build_environment(step), seconds)
        result = judge_step(step, exit_code, time.monotonic() - started, read_report(report))
        if result.status == Status.PASSED and not self._shows_evidence(step):
            return replace(result, status=Status.FAILED, detail=f"no rank printed: {step.evidence}")
        return result

    def _shows_evidence(self, step: Step) -> bool:
        """Return whether a rank of the latest run printed the line that the step needs."""
        if not step.evidence or (self._rehearse and step.environment):
            return True
        runs = sorted((self._work / "home/runs").iterdir())
        outputs = runs[-1].glob("jobs/*/std*") if runs else ()
        return any(step.evidence in path.read_text(errors="replace") for path in outputs)

    @property
    def _search_path(self) -> str:
        return self._environment["PATH"]

    def _build_command(self, step: Step, seconds: float, report: Path) -> list[str]:
        if step.suite is not None:
            return step.suite.build_command(seconds, report, rehearse=self._rehearse)
        return list(step.rehearsal if self._rehearse and step.rehearsal else step.program)

    def _build_environment(self, step: Step) -> dict[str, str]:
        if self._rehearse:  # without CUDA, which the step's environment is for
            variables = dict(self._environment)
            changes = (*step.stand_in, *step.changes)
        else:
            variables = {**self._environment, **step.environment}
            changes = step.changes
        if changes:
            folders = (ROOT / FOLDER / "rank_site", ROOT, ROOT / "tests")
            variables["PYTHONPATH"] = os.pathsep.join(map(str, folders))
            variables["GPU_ONCE_CHANGES"] = " ".join(changes)
        return variables

    def _execute(
        self, command: Sequence[str], variables: dict[str, str], seconds: float
    ) -> int | None:
        """Run a program with its output in the log.

        Returns:
            The exit code, or None if the program was stopped at its time limit.
        """
        executable = shutil.which(command[0], path=self._search_path)
        if executable is None:
            self._log.write(f"{command[0]} is not installed\n")
            return 127
        self._process = subprocess.Popen(
            [executable, *command[1:]],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        output = threading.Thread(target=self._copy_output, daemon=True)
        output.start()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.stop()
            # A process that left the group may keep the pipe open.
            output.join(self._kill_seconds)

    def _copy_output(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                self._log.write(line)

    def stop(self) -> None:
        """End the running program with all processes of its group."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._kill_seconds)
        with suppress(ProcessLookupError):  # all processes of the group have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def save(self) -> None:
        """Write summary, results and archive, so that they exist after an interruption."""
        (self._output / "summary.txt").write_text(render_summary(self.results))
        content = {
            "schema": SCHEMA,
            "date": datetime.now(UTC).date().isoformat(),
            "rehearsal": self._rehearse,
            "machine": self.describe_machine(),
            "steps": [asdict(result) for result in self.results],
        }
        (self._output / "results.json").write_text(json.dumps(content, indent=1) + "\n")
        with tarfile.open(self._output / "reports.tar.gz", "w:gz") as archive:
            archive.add(self._reports, "reports")

    def describe_machine(self) -> dict[str, str]:
        """Return GPU, driver and versions from the reports of runs."""
        facts = {"python": platform.python_version(), "torch": self._torch_version()}
        for path in sorted(self._reports.glob("*.json")):
            facts |= collect_machine_facts(read_report(path))
        return facts

    def _torch_version(self) -> str:
        script = "from importlib.metadata import version; print(version('torch'))"
        python = shutil.which("python", path=self._search_path) or sys.executable
        completed = subprocess.run([python, "-c", script], capture_output=True, text=True)
        return completed.stdout.strip() or "not installed"

    def close(self) -> None:
        """Print the summary and remove the working folder."""
        self._log.write_heading("summary")
        self._log.write(render_summary(self.results))
        self._log.close()
        shutil.rmtree(self._work, ignore_errors=True)
