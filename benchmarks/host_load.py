"""Cost of telling a host's load with the heartbeat: one reading, and runs with it and without.

    python -m benchmarks.host_load [--rounds 9] [--suite suites/smoke.yaml]

Runs of the suite go by turns, in which ranks tell the load of their host and in which they do not.
Printed are the median of a reading, and of all cases together the geometric mean of the ratios of
their fastest iterations, with over without: the median of neighbouring runs, and its 95 % interval
(by resampling the pairs). The goal is missed where the whole interval lies above it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.goals import Figure, argument_parser, table

from spbench_core.events.rank_events import ENV_HOST_LOAD
from spbench_workers.host_load import HostLoad

SPBENCH = str(Path(sys.executable).parent / "spbench")
OFF = {ENV_HOST_LOAD: "off"}
"""In the console's own environment, which its ranks on this machine inherit."""
READINGS = 1000
RESAMPLES = 2000
Times = dict[str, float]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each kind")
    parser.add_argument("--suite", type=Path, default=Path("suites/smoke.yaml"))
    words = parser.parse_args()
    with_load = []
    without = []
    for _ in range(words.rounds):
        without.append(_run(words.suite, OFF))
        with_load.append(_run(words.suite, {}))
    ratios = [
        geometric_mean(on[case] / off[case] for case in on)
        for on, off in zip(with_load, without, strict=True)
    ]
    least, most = interval(ratios)
    figures = [
        Figure("a reading, median", reading(), "us", most=1000),
        Figure(f"{len(with_load[0])} cases with it over those without", median(ratios), ""),
        Figure("the least that this may be", least, "", most=1.02),
        Figure("the most", most, ""),
    ]
    print(f"{words.suite}, {words.rounds} runs of each kind by turns")
    print(table(figures))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median of these values, by the percentile bootstrap."""
    draw = random.Random(0)
    drawn = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]


def reading() -> float:
    """Return the median time of a reading in microseconds."""
    load = HostLoad()
    times = []
    for _ in range(READINGS):
        started = time.perf_counter()
        load()
        times.append(1e6 * (time.perf_counter() - started))
    return median(times)


def _run(suite: Path, env: Mapping[str, str]) -> Times:
    """Run the suite with more environment; return the fastest iteration of each case, in ms.

    A run whose hosts told their load although they should not, or did not, ends the command.
    """
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        words = [SPBENCH, "run", str(suite), "--headless", "--quiet", "--json", "-", "--home", home]
        done = subprocess.run(
            words, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 1):  # an expectation may fail by chance
            sys.exit(f"host_load: exit {done.returncode}\n{done.stderr}")
    report = json.loads(done.stdout)
    if bool(report["hosts"]) == bool(env):
        sys.exit(f"host_load: hosts told {report['hosts']} with {env or 'no'} more environment")
    cases = report["cases"]
    return {case["id"]: case["metrics"]["time_ms"]["min"] for case in cases}


if __name__ == "__main__":
    main()
