"""Faults of what commands read: recorded runs, suites and hostfiles."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.paths import TEST_SUITES
from support.reliability.trial import Trial
from support.runs import RunResult

FAULTS_SUITE = (TEST_SUITES / "faults.yaml").read_text()


def damage_run(damage: Callable[[Path], object], *words: str) -> Callable[[Trial], RunResult]:
    """Record a run, damage its folder, and show it by a command of `spbench results`."""

    def act(trial: Trial) -> RunResult:
        trial.start(FAULTS_SUITE)
        assert trial.wait().code == 0
        damage(trial.run.folder)
        ended = trial.run_spbench("results", *(words or ("show",)), "--home", str(trial.run.home))
        assert "\x1b" not in ended.stdout
        left_out = [line for line in ended.stdout.splitlines() if "events.jsonl" in line]
        return replace(ended, stderr=ended.stderr or "\n".join(left_out))

    return act


def break_line(folder: Path) -> None:
    """Break a line in the middle of the events, and forget the report made of them."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[len(lines) // 2] = "{broken\n"
    path.write_text("".join(lines))
    (folder / "report.json").unlink()


def replace_by_fifo(folder: Path) -> None:
    """Put a FIFO, which nobody writes to, in the place of the events."""
    for name in ("events.jsonl", "report.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "events.jsonl")


def insert_escapes(folder: Path) -> None:
    """Give the cases of a run names that move a terminal's cursor and begin a formula."""
    for name in ("events.jsonl", "report.json", "run.json", "suite.yaml"):
        path = folder / name
        if path.exists():
            text = path.read_text()
            path.write_text(text.replace('"second"', '"=cmd()\\u001b[2J\\u001b]0;x\\u0007"'))


def validate_suite(text: str, *words: str) -> Callable[[Trial], RunResult]:
    """Validate, or run, a suite of this text."""

    def act(trial: Trial) -> RunResult:
        path = trial.folder / "suite.yaml"
        path.write_text(text)
        return trial.run_spbench("validate", str(path), *words)

    return act


def run_with_hostfile(text: str) -> Callable[[Trial], RunResult]:
    """Run a suite with a hostfile of this text."""

    def act(trial: Trial) -> RunResult:
        path = trial.folder / "hosts"
        path.write_text(text)
        trial.start(FAULTS_SUITE, "--hostfile", str(path))
        ended = trial.wait()
        assert len(ended.stderr) < 10_000, len(ended.stderr)
        return ended

    return act
