"""Runs killed at random moments, and resumed: lost and repeated measurements.

    python -m benchmarks.resume [--kills 50] [--seed 1]

Each trial starts a small suite of three jobs, kills its console by SIGKILL at a random moment, and
resumes the run after each kill; there are one or two. Afterwards the run must have each case once,
with all of its repeats, and the cases with earlier verdicts must still have these. The exit code is
1 if a trial fails. A trial takes about 6 s on two cores.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.goals import make_argument_parser

from spbench.engine.processes import find_processes
from spbench.record.runs.folder import RunFolder, list_runs
from spbench.record.state import RunState

SPBENCH = str(Path(sys.executable).parent / "spbench")
SUITE = """\
schema: spbench.suite/1
name: killed
cases:
  - {name: twice, benchmark: link.pingpong, np: 2, repeat: 2, params: {iterations: 5, sizes: [8]}}
  - {name: once, benchmark: link.pingpong, np: 2, params: {iterations: 7, sizes: [8, 64]}}
  - name: alone
    benchmark: link.pingpong
    np: 2
    params: {iterations: 9, sizes: [16]}
    launch: {env: {ALONE: "1"}}
"""
REPEATS = {"twice": 2, "once": 1, "alone": 1}
BEFORE = "before the run had a folder"
AFTER = "after its end"
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class KilledRun:
    """A killed and resumed run.

    Attributes:
        killed_after_s: Seconds from its start to the first kill.
        progress: Its progress at the first kill.
        failures: Errors after it was resumed.
    """

    killed_after_s: float
    progress: str
    failures: tuple[str, ...]


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    time_suite()  # warms the page cache
    longest = time_suite()
    trials = []
    for number in range(options.kills):
        trials.append(kill_and_resume(generator, longest))
        _print_trial(number + 1, trials[-1])
    print(f"\nkilled in the first {longest:.1f} s, {options.kills} times; seed {options.seed}")
    for progress, count in sorted(Counter(trial.progress for trial in trials).items()):
        passed = sum(trial.progress == progress and not trial.failures for trial in trials)
        print(f"  {progress}: {passed} of {count} passed")
    sys.exit(any(trial.failures for trial in trials))


def _print_trial(number: int, trial: KilledRun) -> None:
    outcome = "; ".join(trial.failures) or "passed"
    print(f"{number:3}  {trial.killed_after_s:5.2f} s  {trial.progress}: {outcome}", flush=True)


def time_suite() -> float:
    """Return the seconds of the suite without a kill."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        started = time.monotonic()
        subprocess.run(_build_command(Path(folder)), stdout=subprocess.DEVNULL, check=True)
        return time.monotonic() - started


def kill_and_resume(generator: random.Random, longest: float) -> KilledRun:
    """Kill a run within its first seconds and resume it; a third of the runs, twice."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as work_folder:
        home = Path(work_folder)
        kill_after = generator.uniform(0.0, longest)
        if not _kill_after(_build_command(home), kill_after):
            return KilledRun(kill_after, AFTER, ())
        folders = list_runs(home)
        if not folders:
            return KilledRun(kill_after, BEFORE, ())
        (folder,) = folders
        before = folder.replay()
        if generator.random() < 1 / 3:
            _kill_after(_build_command(home, folder), generator.uniform(0.0, longest))
        completed = subprocess.run(
            _build_command(home, folder),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        is_complete = completed.returncode == 5  # it had ended before its second kill
        failures = _find_failures(folder, before)
        if completed.returncode and not is_complete:
            failures.insert(0, f"exit {completed.returncode}: {completed.stderr}")
        return KilledRun(kill_after, _describe_progress(before), tuple(failures))


def _build_command(home: Path, folder: RunFolder | None = None) -> list[str]:
    suite = home / "killed.yaml"
    if folder is None:
        suite.write_text(SUITE)
    selection = [str(suite)] if folder is None else ["--resume", folder.id]
    return [SPBENCH, "run", *selection, "--headless", "--home", str(home)]


def _kill_after(command: list[str], seconds: float) -> bool:
    """Start a command and kill it after some seconds; return whether it still ran."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def _describe_progress(state: RunState) -> str:
    if state.run is None:
        return "before its first event"
    judged = sum(case.status in ("passed", "failed") for case in state.cases.values())
    return f"with {judged} of {len(state.cases)} verdicts"


def _find_failures(folder: RunFolder, before: RunState) -> list[str]:
    report = json.loads(folder.report.read_text()) if folder.report.exists() else {"cases": []}
    cases = {case["id"]: case for case in report["cases"]}
    failures = []
    if sorted(case["id"] for case in report["cases"]) != sorted(REPEATS):
        failures.append(f"cases {sorted(cases)}")
    failures += [error for case in cases.values() if (error := _check_case(case))]
    after = folder.replay()
    for case in before.cases.values():
        if case.status == "passed" and case.execution != after.cases[case.id].execution:
            failures.append(f"{case.id} was passed before, and has another verdict")
    if left := find_processes(folder.id):
        failures.append(f"processes left: {left}")
    return failures


def _check_case(case: Mapping[str, Any]) -> str | None:
    repeats = REPEATS[case["id"]]
    samples = case["samples"].get("time_ms", [])
    if case["status"] != "passed" or len(samples) != repeats or len(case["launches"]) != repeats:
        return f"{case['id']} is {case['status']} with {len(samples)} repeats"
    lengths = {len(values) for values in samples}
    return None if len(lengths) == 1 else f"{case['id']} has repeats of {sorted(lengths)} samples"


if __name__ == "__main__":
    main()
