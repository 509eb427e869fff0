"""Time and size of the reports of a run of a thousand cases, and time to compare two such runs.

    python -m benchmarks.reports [--cases 1000] [--ranks 8] [--samples 50] [--launches 5]

The runs are made up; `spbench report` and `spbench compare` are processes of their own, timed from
their start. The first comparison makes the index of the runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.goals import Figure, argument_parser, table
from benchmarks.made_up_run import write_cases

from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_report

REPOSITORY = Path(__file__).parent.parent
FORMATS = ("html", "md", "csv", "junit", "openmetrics", "trace")
MEGABYTE = 2**20


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--samples", type=int, default=50, help="of each rank (default: 50)")
    parser.add_argument("--launches", type=int, default=5, help="that share them (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each (default: 5)")
    words = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        home = Path(place)
        for number in (1, 2):
            write_run(home, number, words.cases, words.ranks, words.samples, words.launches)
        first = compared(home)
        seconds = median(compared(home) for _ in range(words.rounds))
        figures += [
            Figure("compare", seconds, "s", most=2),
            Figure("compare, without an index", first, "s"),
        ]
        for kind in FORMATS:
            path = home / f"report.{kind}"
            seconds = median(reported(home, kind, path) for _ in range(words.rounds))
            most, megabytes = (3, 2) if kind == "html" else (None, None)
            size = path.stat().st_size / MEGABYTE
            figures += [
                Figure(kind, seconds, "s", most=most),
                Figure(f"{kind}, size", size, "MiB", most=megabytes),
            ]
    about = f"{words.cases:,} cases on {words.ranks} ranks in {words.launches} launches"
    print(f"{about}, median of {words.rounds}")
    print(table(figures))


def write_run(
    home: Path, number: int, cases: int, ranks: int, samples: int, launches: int
) -> RunFolder:
    """Write a run that has ended, with its report."""
    folder = RunFolder(home / "runs" / f"20260101-00000{number}-made-up-000{number}")
    write_cases(folder.path, cases, ranks, max(1, samples // launches), launches)
    report = build_report(folder.replay())
    folder.write_json("report.json", report)
    run = folder.read_json("run.json")
    ended = {"verdict": report["run"]["verdict"], "exit_code": report["run"]["exit_code"]}
    folder.write_text("run.json", json.dumps(run | ended | {"finished": time.time()}))
    return folder


def compared(home: Path) -> float:
    """Return the seconds that `spbench compare` takes."""
    words = [sys.executable, "-m", "spbench", "compare", "last~1", "last", "--home", str(home)]
    started = time.monotonic()
    subprocess.run(words, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def reported(home: Path, kind: str, path: Path) -> float:
    """Return the seconds that `spbench report` takes."""
    words = [sys.executable, "-m", "spbench", "report", "--home", str(home)]
    started = time.monotonic()
    subprocess.run([*words, "--format", kind, "-o", str(path)], cwd=REPOSITORY, check=True)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
