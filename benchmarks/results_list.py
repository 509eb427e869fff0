"""Time to list ten thousand runs, in a shell and on the console's Results page.

    python -m benchmarks.results_list [--runs 10000] [--rounds 5]

The runs are synthetic. The command is a separate process, timed from its start. The page is timed
from its key to the newest run's line.
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
from benchmarks.terminal import Terminal

REPOSITORY = Path(__file__).parent.parent
SPBENCH = str(Path(sys.executable).parent / "spbench")
FIRST_START = 1_700_000_000.0
VARIABLES = {f"UCX_VARIABLE_{number}": "a value of some length" for number in range(40)}
"""An environment of usual length, so that run.json is as long as on clusters."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder)
        write_runs(home, options.runs)
        first = time_list(home)
        list_seconds = median(time_list(home) for _ in range(options.rounds))
        page_seconds = median(time_page(home) for _ in range(options.rounds))
        figures = [
            Figure("results list", list_seconds, "s", maximum=1),
            Figure("Results page", page_seconds, "s"),
            Figure("results list, without an index", first, "s"),
        ]
    print(f"{options.runs:,} runs, median of {options.rounds}")
    print(format_figures(figures))


def write_runs(home: Path, count: int) -> None:
    """Write run.json of complete runs, one per hour."""
    for number in range(count):
        started = FIRST_START + 3600 * number
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(started))
        folder = home / "runs" / f"{stamp}-made-up-{number % 65536:04x}"
        folder.mkdir(parents=True)
        run = {
            "id": folder.name,
            "suite": "made-up",
            "file": "made-up.yaml",
            "argv": ["run", "made-up.yaml"],
            "console": {"pid": 1, "host": "login", "started": started},
            "environment": {"host": "login", "env": VARIABLES},
            "verdict": "passed",
            "exit_code": 0,
            "finished": started + 60,
            "counts": {"passed": 4},
        }
        (folder / "run.json").write_text(json.dumps(run))


def time_list(home: Path) -> float:
    """Return the seconds that `spbench results list` takes."""
    command = [SPBENCH, "results", "list", "--home", str(home)]
    started = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def time_page(home: Path) -> float:
    """Return the seconds until the Results page shows the runs."""
    with Terminal([SPBENCH, "tui", "--home", str(home)], REPOSITORY) as terminal:
        terminal.wait_for_text("Quit")
        terminal.press("3")
        return terminal.wait_for_text("4/4")


if __name__ == "__main__":
    main()
