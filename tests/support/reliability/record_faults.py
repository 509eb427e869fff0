"""Faults of the files that commands read: recorded runs, suites and hostfiles."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.reliability.trial import FAULTS_SUITE, FaultTrial
from support.runs import RunResult


def damage_run(
    damage: Callable[[Path], object], *arguments: str
) -> Callable[[FaultTrial], RunResult]:
    """Record a run, damage its folder, and show it with `spbench results`."""

    def act(trial: FaultTrial) -> RunResult:
        trial.start(FAULTS_SUITE)
        assert trial.wait().code == 0
        damage(trial.run.folder)
        subcommand = arguments or ("show",)
        result = trial.run_spbench("results", *subcommand, "--home", str(trial.run.home))
        assert "\x1b" not in result.stdout
        omissions = [line for line in result.stdout.splitlines() if "events.jsonl" in line]
        return replace(result, stderr=result.stderr or "\n".join(omissions))

    return act


def break_line(folder: Path) -> None:
    """Break a line in the middle of the events, and remove the report."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[len(lines) // 2] = "{broken\n"
    path.write_text("".join(lines))
    (folder / "report.json").unlink()


def replace_by_fifo(folder: Path) -> None:
    """Replace the events by a FIFO without a writer."""
    for name in ("events.jsonl", "report.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "events.jsonl")


def insert_escapes(folder: Path) -> None:
    """Give the cases of a run names with escape sequences and a formula."""
    for name in ("events.jsonl", "report.json", "run.json", "suite.yaml"):
        path = folder / name
        if path.exists():
            text = path.read_text()
            path.write_text(text.replace('"second"', '"=cmd()\\u001b[2J\\u001b]0;x\\u0007"'))


def validate_suite(text: str, *arguments: str) -> Callable[[FaultTrial], RunResult]:
    """Validate a suite with this text."""

    def act(trial: FaultTrial) -> RunResult:
        path = trial.folder / "suite.yaml"
        path.write_text(text)
        return trial.run_spbench("validate", str(path), *arguments)

    return act


def run_with_hostfile(text: str) -> Callable[[FaultTrial], RunResult]:
    """Run a suite with a hostfile with this text."""

    def act(trial: FaultTrial) -> RunResult:
        path = trial.folder / "hosts"
        path.write_text(text)
        trial.start(FAULTS_SUITE, "--hostfile", str(path))
        result = trial.wait()
        assert len(result.stderr) < 10_000, len(result.stderr)
        return result

    return act
