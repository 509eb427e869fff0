"""Measure models over 2 ranks against one process: tiles, stages and mirrored pipelines.

    python -m benchmarks.models [--rounds 3]

Runs benchmarks/models.yaml, ResNet-110 v2 with one thread a rank, and takes medians over the rounds
of each run's median step. A round takes some six minutes on two cores.
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

from benchmarks.goals import Figure, argument_parser, table

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
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of the suite (default: 3)")
    words = parser.parse_args()
    rounds = [measured() for _ in range(words.rounds)]
    print(f"ResNet-110 v2, 2 ranks of one thread, median of {len(rounds)} rounds")
    print(table(figures(rounds)))


def measured() -> Metrics:
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


def figures(rounds: Sequence[Metrics]) -> list[Figure]:
    def of(name: str, metric: str) -> float:
        return median(cases[name][metric] for cases in rounds)

    def ratio(one: str, other: str) -> float:
        return median(cases[one]["time_ms"] / cases[other]["time_ms"] for cases in rounds)

    times = [Figure(name, of(name, "time_ms"), "ms") for name in rounds[0]]
    return [
        *times,
        Figure("2 models apart, speed over one process", 2 * ratio("sequential", "apart"), "times"),
        Figure(
            "2 tiles, speed over one process", ratio("sequential", "tiles"), "times", least=1.75
        ),
        Figure("2 stages, speed over one process", ratio("sequential-8-parts", "stages"), "times"),
        Figure(
            "2 stages by zb-h1, speed over one process",
            ratio("sequential-8-parts", "stages-zero-bubble"),
            "times",
            least=1.7,
        ),
        Figure(
            "exchange and joins at 512x512, share of the step",
            median(overhead(cases["tiles-512"]) for cases in rounds),
            "%",
            most=15.0,
        ),
        Figure(
            "mirrored, time over one pipeline's",
            ratio("mirrored", "one-pipeline"),
            "times",
            most=1.0,
        ),
        Figure(
            "mirrored one way, time over one pipeline's",
            ratio("mirrored-one-way", "one-pipeline"),
            "times",
            most=1.0,
        ),
        *(
            Figure(
                f"activations of a rank, {name}, over one process'",
                of(name, "activation_mb") / of("sequential", "activation_mb"),
                "times",
                most=most,
            )
            for name, most in (("tiles", 0.55), ("tiles-2x2", 0.30))
        ),
        *(Figure(f"memory, {name}", of(name, "peak_memory_mb"), "MB") for name in MEMORY),
    ]


def overhead(metrics: dict[str, float]) -> float:
    """Return the share of a step that is halo exchange and joints, in percent."""
    return 100.0 * (metrics["exchange_ms"] + metrics["join_ms"]) / metrics["time_ms"]


if __name__ == "__main__":
    main()
