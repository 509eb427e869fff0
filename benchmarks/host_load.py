"""Cost of telling a host's load with the heartbeat: one reading, and runs with it and without.

    python -m benchmarks.host_load [--rounds 9] [--suite suites/links.yaml]

Runs of the suite go by turns, in which ranks tell the load of their host and in which they do not.
Printed are the median of a reading, and of all cases together the geometric mean of the ratios of
their median times, with over without.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.goals import Figure, argument_parser, table

from spbench_workers.host_load import HostLoad

SPBENCH = str(Path(sys.executable).parent / "spbench")
OFF = "launch.env.SPBENCH_HOST_LOAD=off"
READINGS = 1000
Times = dict[str, float]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each kind")
    parser.add_argument("--suite", type=Path, default=Path("suites/links.yaml"))
    words = parser.parse_args()
    with_load, without = [], []
    for _ in range(words.rounds):
        without.append(_run(words.suite, "--set", OFF))
        with_load.append(_run(words.suite))
    medians = [
        {case: median(times[case] for times in runs) for case in runs[0]}
        for runs in (with_load, without)
    ]
    ratio = geometric_mean(medians[0][case] / medians[1][case] for case in medians[0])
    figures = [
        Figure("a reading, median", reading(), "us", most=1000),
        Figure(f"{len(medians[0])} cases with it over those without", ratio, "", most=1.02),
    ]
    print(f"{words.suite}, {words.rounds} runs of each kind by turns")
    print(table(figures))


def reading() -> float:
    """Return the median time of a reading in microseconds."""
    load, times = HostLoad(), []
    for _ in range(READINGS):
        started = time.perf_counter()
        load()
        times.append(1e6 * (time.perf_counter() - started))
    return median(times)


def _run(suite: Path, *more: str) -> Times:
    """Run the suite, and return the median time of each of its cases."""
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        words = [SPBENCH, "run", str(suite), "--headless", "--quiet", "--json", "-", "--home", home]
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # an expectation may fail by chance
            sys.exit(f"host_load: exit {done.returncode}\n{done.stderr}")
    cases = json.loads(done.stdout)["cases"]
    return {case["id"]: case["metrics"]["time_ms"]["value"] for case in cases}


if __name__ == "__main__":
    main()
