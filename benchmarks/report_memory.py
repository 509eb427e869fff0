"""Memory of the report of a large run, at its end and in commands that read it.

    python -m benchmarks.report_memory

The run is synthetic. Each command is a separate process, and the kernel reports its peak. Part of
the memory at a run's end is the state of the run, which exists without the report.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.goals import Figure, format_figures, make_argument_parser
from benchmarks.synthetic_run import write_cases

from spbench.cli.runs.reports import write_report
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import index_ended_run
from spbench.report.build import build_cases, build_document

REPOSITORY = Path(__file__).parent.parent
MEGABYTE = 1e6
MAX_MEGABYTES = 300
RUNS = ("20260101-000001-synthetic-0001", "20260101-000002-synthetic-0002")
BASELINE = "synthetic"


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--samples", type=int, default=1, help="of each rank (default: 1)")
    parser.add_argument("--end", type=Path, metavar="FOLDER", help="only write the report of a run")
    options = parser.parse_args()
    if options.end:
        end_run(RunFolder(options.end))
        return
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder)
        figures = measure(home, options.cases, options.ranks, options.samples)
    print(f"{options.cases:,} cases on {options.ranks} ranks")
    print(format_figures(figures))


def measure(home: Path, cases: int, ranks: int, samples: int) -> list[Figure]:
    """Return the memory peaks of each command, and the size of the report."""
    runs = home / "runs"
    figures = []
    for name in RUNS:
        write_cases(runs / name, cases, ranks, samples)
        command = ["benchmarks.report_memory", "--end", str(runs / name)]
        seconds, peak, output = run_module(command)
        if name == RUNS[0]:
            state, growth = (float(number) for number in output.split())
            size = (runs / name / "report.json").stat().st_size / MEGABYTE
            figures += [
                Figure("report, size", size, "MB"),
                Figure("a run's end: state of the run", state, "MB"),
                Figure("a run's end: growth for report.json and --json", growth, "MB"),
                Figure("a run's end: whole process", peak, "MB", maximum=MAX_MEGABYTES),
                Figure("a run's end", seconds, "s"),
            ]
    for command in (
        ["results", "show", RUNS[1]],
        ["report", RUNS[1], "--format", "html"],
        ["report", RUNS[1], "--format", "md"],
        ["report", RUNS[1], "--format", "openmetrics"],
        ["results", "export", RUNS[1], "--format", "json"],
        ["compare", *RUNS],
        ["baseline", "set", BASELINE, RUNS[0]],
        ["compare", BASELINE, RUNS[1]],
    ):
        seconds, peak, _ = run_module(["spbench", *command, "--home", str(home)])
        name = " ".join(argument for argument in command if argument not in RUNS)
        figures += [
            Figure(f"{name}: whole process", peak, "MB", maximum=MAX_MEGABYTES),
            Figure(name, seconds, "s"),
        ]
    return figures


class ModuleRun(NamedTuple):
    """A run of a Python module: its seconds, its memory peak in MB, and its output."""

    seconds: float
    peak_mb: float
    output: str


def run_module(arguments: list[str]) -> ModuleRun:
    """Run a Python module in a process."""
    command = [sys.executable, "-m", *arguments]
    started = time.monotonic()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        text = output.read().decode()
    return ModuleRun(time.monotonic() - started, usage.ru_maxrss * 1024 / MEGABYTE, text)


def end_run(folder: RunFolder) -> None:
    """Write the reports of a run like at its end; print the state's MB and the growth."""
    state = folder.replay()
    before = read_peak_megabytes()
    cases, _ = build_cases(state)
    report = build_document(state, cases)
    folder.write_chunks("report.json", report.chunks())
    index_ended_run(folder, report.head, report.cases)
    write_report(report, str(folder.path / "copy.json"), no_samples=False)
    print(before, read_peak_megabytes() - before)


def read_peak_megabytes() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


if __name__ == "__main__":
    main()
