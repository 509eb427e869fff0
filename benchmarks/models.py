"""Measure models over 2 ranks against one process: tiles, stages, pipelines.

    python -m benchmarks.models [--rounds 3]

Runs benchmarks/models.yaml, ResNet-110 v2 with one thread per rank, and takes medians over the
rounds of each run's median step. A round takes about six minutes on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Figure, format_figures, make_argument_parser

SUITE = Path(__file__).with_suffix(".yaml")
MEMORY = (
    "sequential",
    "tiles",
    "stages",
    "stages-zero-bubble",
    "one-pipeline",
    "mirrored",
    "mirrored-one-way",
)
Metrics = dict[str, dict[str, float]]
"""By case and metric."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of the suite (default: 3)")
    options = parser.parse_args()
    rounds = [run_suite() for _ in range(options.rounds)]
    print(f"ResNet-110 v2, 2 ranks of one thread, median of {len(rounds)} rounds")
    print(format_figures(build_figures(rounds)))


def run_suite() -> Metrics:
    """Run the suite once; return the metrics of its cases."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "spbench", "run", str(SUITE), "--headless"]
        command += ["--home", folder, "--json", str(report), "--no-samples"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        cases: list[dict[str, Any]] = json.loads(report.read_text())["cases"]
    return {
        case["name"]: {name: metric["value"] for name, metric in case["metrics"].items()}
        for case in cases
    }


def build_figures(rounds: Sequence[Metrics]) -> list[Figure]:
    def median_metric(name: str, metric: str) -> float:
        return median(cases[name][metric] for cases in rounds)

    def ratio(case: str, reference: str) -> float:
        return median(cases[case]["time_ms"] / cases[reference]["time_ms"] for cases in rounds)

    times = [Figure(name, median_metric(name, "time_ms"), "ms") for name in rounds[0]]
    return [
        *times,
        Figure("2 models apart, speed over one process", 2 * ratio("sequential", "apart"), "times"),
        Figure(
            "2 tiles, speed over one process", ratio("sequential", "tiles"), "times", minimum=1.75
        ),
        Figure("2 stages, speed over one process", ratio("sequential-8-parts", "stages"), "times"),
        Figure(
            "2 stages by zb-h1, speed over one process",
            ratio("sequential-8-parts", "stages-zero-bubble"),
            "times",
            minimum=1.7,
        ),
        Figure(
            "exchange and joins at 512x512, share of the step",
            median(compute_overhead(cases["tiles-512"]) for cases in rounds),
            "%",
            maximum=15.0,
        ),
        Figure(
            "mirrored, time over one pipeline's",
            ratio("mirrored", "one-pipeline"),
            "times",
            maximum=1.0,
        ),
        Figure(
            "mirrored one way, time over one pipeline's",
            ratio("mirrored-one-way", "one-pipeline"),
            "times",
            maximum=1.0,
        ),
        *(
            Figure(
                f"activations of a rank, {name}, over one process'",
                median_metric(name, "activation_mb") / median_metric("sequential", "activation_mb"),
                "times",
                maximum=limit,
            )
            for name, limit in (("tiles", 0.55), ("tiles-2x2", 0.30))
        ),
        *(
            Figure(f"memory, {name}", median_metric(name, "peak_memory_mb"), "MB")
            for name in MEMORY
        ),
    ]


def compute_overhead(metrics: dict[str, float]) -> float:
    """Return the share of a step in halo exchanges and joins, in percent."""
    return 100.0 * (metrics["exchange_ms"] + metrics["join_ms"]) / metrics["time_ms"]


if __name__ == "__main__":
    main()
