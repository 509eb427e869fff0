"""Cost of sending a host's load with the heartbeat: one reading, and whole runs.

    python -m benchmarks.host_load [--rounds 9] [--suite suites/smoke.yaml]

Runs of the suite alternate between ranks that send the load of their host and ranks that do not.
Printed is the median of a reading. Over all cases, the geometric mean of the ratios of their
fastest iterations, with load over without, is computed for each pair of neighbouring runs. Printed
are its median and the 95 % interval (by resampling the pairs). The goal is missed if the whole
interval is above it.
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

from benchmarks.goals import Figure, format_figures, make_argument_parser

from spbench_core.events.rank_events import ENV_HOST_LOAD
from spbench_workers.host_load import HostLoad

SPBENCH = str(Path(sys.executable).parent / "spbench")
OFF = {ENV_HOST_LOAD: "off"}
"""Set in the console's environment, which its ranks on this machine inherit."""
READINGS = 1000
RESAMPLES = 2000
Times = dict[str, float]


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each kind")
    parser.add_argument("--suite", type=Path, default=Path("suites/smoke.yaml"))
    options = parser.parse_args()
    with_load = []
    without_load = []
    for _ in range(options.rounds):
        without_load.append(_run_suite(options.suite, OFF))
        with_load.append(_run_suite(options.suite, {}))
    ratios = [
        geometric_mean(times[case] / reference[case] for case in times)
        for times, reference in zip(with_load, without_load, strict=True)
    ]
    low, high = bootstrap_interval(ratios)
    figures = [
        Figure("a reading, median", measure_reading(), "us", maximum=1000),
        Figure(f"{len(with_load[0])} cases with it over those without", median(ratios), ""),
        Figure("lower end of the 95 % interval", low, "", maximum=1.02),
        Figure("upper end", high, ""),
    ]
    print(f"{options.suite}, {options.rounds} runs of each kind, alternating")
    print(format_figures(figures))


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by the percentile bootstrap."""
    generator = random.Random(0)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


def measure_reading() -> float:
    """Return the median time of a reading in microseconds."""
    load = HostLoad()
    times_us = []
    for _ in range(READINGS):
        started = time.perf_counter()
        load()
        times_us.append(1e6 * (time.perf_counter() - started))
    return median(times_us)


def _run_suite(suite: Path, env: Mapping[str, str]) -> Times:
    """Run the suite with variables; return each case's fastest iteration in ms.

    Ends the command if the report has hosts' loads although they are off, or none although they are
    on.
    """
    with tempfile.TemporaryDirectory(prefix="spbench-") as home:
        command = [
            SPBENCH,
            "run",
            str(suite),
            "--headless",
            "--quiet",
            "--json",
            "-",
            "--home",
            home,
        ]
        completed = subprocess.run(
            command, env={**os.environ, **env}, capture_output=True, text=True, check=False
        )
        if completed.returncode not in (0, 1):  # an expectation may fail by chance
            sys.exit(f"host_load: exit {completed.returncode}\n{completed.stderr}")
    report = json.loads(completed.stdout)
    if bool(report["hosts"]) == bool(env):
        sys.exit(f"host_load: reported hosts {report['hosts']} with {env or 'no'} more environment")
    cases = report["cases"]
    return {case["id"]: case["metrics"]["time_ms"]["min"] for case in cases}


if __name__ == "__main__":
    main()
