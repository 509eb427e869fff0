"""Time and size of the reports of a thousand cases, and time to compare two runs.

    python -m benchmarks.reports [--cases 1000] [--ranks 8] [--samples 50] [--launches 5]

The runs are synthetic. `spbench report` and `spbench compare` are separate processes, timed from
their start. The first comparison builds the index of the runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.goals import Figure, format_figures, make_argument_parser
from benchmarks.synthetic_run import write_cases

from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report

REPOSITORY = Path(__file__).parent.parent
FORMATS = ("html", "md", "csv", "junit", "openmetrics", "trace")
MEBIBYTE = 2**20
LIMITS = {"html": (3, 2)}
"""Maximum seconds and MiB of a report, by format."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--samples", type=int, default=50, help="of each rank (default: 50)")
    parser.add_argument("--launches", type=int, default=5, help="that share them (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each (default: 5)")
    options = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder)
        for number in (1, 2):
            write_run(home, number, options.cases, options.ranks, options.samples, options.launches)
        first = time_compare(home)
        seconds = median(time_compare(home) for _ in range(options.rounds))
        figures += [
            Figure("compare", seconds, "s", maximum=2),
            Figure("compare, without an index", first, "s"),
        ]
        for kind in FORMATS:
            path = home / f"report.{kind}"
            seconds = median(time_report(home, kind, path) for _ in range(options.rounds))
            max_seconds, max_mib = LIMITS.get(kind, (None, None))
            size = path.stat().st_size / MEBIBYTE
            figures += [
                Figure(kind, seconds, "s", maximum=max_seconds),
                Figure(f"{kind}, size", size, "MiB", maximum=max_mib),
            ]
    title = f"{options.cases:,} cases on {options.ranks} ranks in {options.launches} launches"
    print(f"{title}, median of {options.rounds}")
    print(format_figures(figures))


def write_run(
    home: Path, number: int, cases: int, ranks: int, samples: int, launches: int
) -> RunFolder:
    """Write a complete run with its report."""
    folder = RunFolder(home / "runs" / f"20260101-00000{number}-made-up-000{number}")
    write_cases(folder.path, cases, ranks, max(1, samples // launches), launches)
    report = build_report(folder.replay())
    folder.write_json("report.json", report)
    run = folder.read_json("run.json")
    ended = {"verdict": report["run"]["verdict"], "exit_code": report["run"]["exit_code"]}
    folder.write_text("run.json", json.dumps(run | ended | {"finished": time.time()}))
    return folder


def time_compare(home: Path) -> float:
    """Return the seconds that `spbench compare` takes."""
    command = [sys.executable, "-m", "spbench", "compare", "last~1", "last", "--home", str(home)]
    started = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def time_report(home: Path, kind: str, path: Path) -> float:
    """Return the seconds that `spbench report` takes."""
    command = [sys.executable, "-m", "spbench", "report", "--home", str(home)]
    started = time.monotonic()
    subprocess.run([*command, "--format", kind, "-o", str(path)], cwd=REPOSITORY, check=True)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
