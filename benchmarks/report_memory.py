"""Memory that the report of a large run takes: at the run's end, and for commands that read it.

    python -m benchmarks.report_memory

The run is synthetic. Each command is a process of its own, and the kernel reports its peak. A part
of a run's end is the state of the run, which is in memory anyway.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.goals import Figure, argument_parser, table
from benchmarks.made_up_run import write_cases

from spbench.cli.runs.reports import write_report
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import index_ended_run
from spbench.report.build import build_cases, build_document

REPOSITORY = Path(__file__).parent.parent
MEGABYTE = 1e6
MOST = 300
RUNS = ("20260101-000001-synthetic-0001", "20260101-000002-synthetic-0002")
BASELINE = "synthetic"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--samples", type=int, default=1, help="of each rank (default: 1)")
    parser.add_argument("--end", type=Path, metavar="FOLDER", help="only write the report of a run")
    words = parser.parse_args()
    if words.end:
        end_run(RunFolder(words.end))
        return
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        home = Path(place)
        figures = measure(home, words.cases, words.ranks, words.samples)
    print(f"{words.cases:,} cases on {words.ranks} ranks")
    print(table(figures))


def measure(home: Path, cases: int, ranks: int, samples: int) -> list[Figure]:
    """Return the peaks of memory of each command, and the size of the report."""
    runs = home / "runs"
    figures = []
    for name in RUNS:
        write_cases(runs / name, cases, ranks, samples)
        command = ["benchmarks.report_memory", "--end", str(runs / name)]
        seconds, peak, output = run_module(command)
        if name == RUNS[0]:
            state, growth = (float(word) for word in output.split())
            size = (runs / name / "report.json").stat().st_size / MEGABYTE
            figures += [
                Figure("report, size", size, "MB"),
                Figure("a run's end: state of the run", state, "MB"),
                Figure("a run's end: growth for report.json and --json", growth, "MB"),
                Figure("a run's end: whole process", peak, "MB", most=MOST),
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
        name = " ".join(word for word in command if word not in RUNS)
        figures += [
            Figure(f"{name}: whole process", peak, "MB", most=MOST),
            Figure(name, seconds, "s"),
        ]
    return figures


def run_module(words: list[str]) -> tuple[float, float, str]:
    """Run a module of Python; return its seconds, its peak in MB, and what it printed."""
    command = [sys.executable, "-m", *words]
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
    return time.monotonic() - started, usage.ru_maxrss * 1024 / MEGABYTE, text


def end_run(folder: RunFolder) -> None:
    """Write the reports of a run as its end does; print the state's MB and the growth."""
    state = folder.replay()
    before = peak_megabytes()
    cases, _ = build_cases(state)
    report = build_document(state, cases)
    folder.write_chunks("report.json", report.chunks())
    index_ended_run(folder, report.head, report.cases)
    write_report(report, str(folder.path / "copy.json"), no_samples=False)
    print(before, peak_megabytes() - before)


def peak_megabytes() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


if __name__ == "__main__":
    main()
