"""Runs killed at random moments, and resumed: what is lost, and what is measured twice.

    python -m benchmarks.resume [--kills 50] [--seed 1]

Each trial starts a small suite of three jobs, kills its console by SIGKILL at a random moment, and
resumes the run as often as it is killed, which is once or twice. Afterwards the run must have each
case once, with all of its repeats, and those that had a verdict before must have kept theirs. Ends
with 1 where one has not. A trial takes some 6 s on two cores.
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

from benchmarks.goals import argument_parser

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
    """A run that was killed: when, how far it had come, and what is wrong after it was resumed."""

    at_s: float
    stood: str
    wrong: tuple[str, ...]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    chance = random.Random(words.seed)
    uncut()  # what it reads is in memory from now on
    longest = uncut()
    trials = []
    for number in range(words.kills):
        trials.append(tried(chance, longest))
        _tell(number + 1, trials[-1])
    print(f"\nkilled in the first {longest:.1f} s, {words.kills} times; seed {words.seed}")
    for stood, count in sorted(Counter(trial.stood for trial in trials).items()):
        right = sum(trial.stood == stood and not trial.wrong for trial in trials)
        print(f"  {stood}: {right} of {count} right")
    sys.exit(any(trial.wrong for trial in trials))


def _tell(number: int, trial: KilledRun) -> None:
    outcome = "; ".join(trial.wrong) or "right"
    print(f"{number:3}  {trial.at_s:5.2f} s  {trial.stood}: {outcome}", flush=True)


def uncut() -> float:
    """Return the seconds that the suite takes."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        started = time.monotonic()
        subprocess.run(_words(Path(place)), stdout=subprocess.DEVNULL, check=True)
        return time.monotonic() - started


def tried(chance: random.Random, longest: float) -> KilledRun:
    """Kill a run within its first seconds and resume it; one time in three it is killed again."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        home = Path(place)
        at = chance.uniform(0.0, longest)
        if not _killed(_words(home), at):
            return KilledRun(at, AFTER, ())
        folders = list_runs(home)
        if not folders:
            return KilledRun(at, BEFORE, ())
        (folder,) = folders
        before = folder.replay()
        if chance.random() < 1 / 3:
            _killed(_words(home, folder), chance.uniform(0.0, longest))
        done = subprocess.run(
            _words(home, folder), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        over = done.returncode == 5  # there was nothing left, after its second kill
        wrong = [] if done.returncode == 0 or over else [f"exit {done.returncode}: {done.stderr}"]
        wrong += _wrong(folder, before)
        return KilledRun(at, _stood(before), tuple(wrong))


def _words(home: Path, folder: RunFolder | None = None) -> list[str]:
    suite = home / "killed.yaml"
    if folder is None:
        suite.write_text(SUITE)
    what = [str(suite)] if folder is None else ["--resume", folder.id]
    return [SPBENCH, "run", *what, "--headless", "--home", str(home)]


def _killed(words: list[str], after: float) -> bool:
    """Start a command and kill it; return whether it still ran."""
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
    return False


def _stood(state: RunState) -> str:
    if state.run is None:
        return "before its first event"
    judged = sum(case.status in ("passed", "failed") for case in state.cases.values())
    return f"with {judged} of {len(state.cases)} verdicts"


def _wrong(folder: RunFolder, before: RunState) -> list[str]:
    report = json.loads(folder.report.read_text()) if folder.report.exists() else {"cases": []}
    cases = {case["id"]: case for case in report["cases"]}
    told = []
    if sorted(case["id"] for case in report["cases"]) != sorted(REPEATS):
        told.append(f"cases {sorted(cases)}")
    told += [wrong for case in cases.values() if (wrong := _wrong_of(case))]
    after = folder.replay()
    for case in before.cases.values():
        if case.status == "passed" and case.verdict != after.cases[case.id].verdict:
            told.append(f"{case.id} was passed before, and has another verdict")
    if left := find_processes(folder.id):
        told.append(f"processes left: {left}")
    return told


def _wrong_of(case: Mapping[str, Any]) -> str | None:
    repeats = REPEATS[case["id"]]
    samples = case["samples"].get("time_ms", [])
    if case["status"] != "passed" or len(samples) != repeats or len(case["launches"]) != repeats:
        return f"{case['id']} is {case['status']} with {len(samples)} repeats"
    lengths = {len(values) for values in samples}
    return None if len(lengths) == 1 else f"{case['id']} has repeats of {sorted(lengths)} samples"


if __name__ == "__main__":
    main()
