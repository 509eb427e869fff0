"""Compare torchvision's ResNet-50, imported by a user, with the built-in one.

    python -m benchmarks.imported_resnet [--rounds 9] [--size 128]

Both train on one process, on two stages and on two tiles, interleaved, with one thread per rank.
Each figure is the median over the rounds of the ratio of both times within a round; the minimum and
maximum are printed too. A round takes about a minute on two cores. It needs torchvision; a torch
without CUDA is enough.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Figure, format_figures, make_argument_parser

LAYOUTS: dict[str, dict[str, Any]] = {
    "one process": {"scheme": "sequential", "parts": 2},
    "two stages": {"scheme": "lp", "parts": 2, "balance": "estimated"},
    "two tiles": {"scheme": "sp", "split_size": 1, "grid": "1x2", "parts": 2},
}
BUILT_IN: dict[str, Any] = {
    "benchmark": "model.resnet",
    "params": {"arch": "resnet50", "num_classes": 1000},
}
IMPORTED: dict[str, Any] = {
    "benchmark": "model.network",
    "params": {"network": "benchmarks.torchvision_networks:resnet50"},
}
MAX_RATIO = 1.03
"""Limit of the imported network's time over that of the built-in one."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds (default: 9)")
    parser.add_argument("--size", type=int, default=128, help="pixels a side (default: 128)")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    for turn in range(options.rounds):
        step_ms = measure_steps(options.size, reverse=bool(turn % 2))
        for layout, layout_ratios in ratios.items():
            imported_ms = step_ms[name_case("imported", layout)]
            layout_ratios.append(imported_ms / step_ms[name_case("built-in", layout)])
    print(
        f"ResNet-50 at {options.size}x{options.size}, imported over built-in, "
        f"{options.rounds} rounds"
    )
    for layout, layout_ratios in ratios.items():
        print(f"{layout}: {min(layout_ratios):.3f} to {max(layout_ratios):.3f}")
    figures = [
        Figure(layout, median(layout_ratios), "times", maximum=MAX_RATIO)
        for layout, layout_ratios in ratios.items()
    ]
    print(format_figures(figures))


def measure_steps(size: int, *, reverse: bool) -> dict[str, float]:
    """Run both networks in all layouts; return the median step in ms by case."""
    shared: dict[str, Any] = {"image_size": size, "batch_size": 4, "iterations": 5, "warmup": 2}
    shared |= {"validate": "off", "baseline": False}
    networks = (("built-in", BUILT_IN), ("imported", IMPORTED))
    cases = []
    for layout, params in LAYOUTS.items():
        for network, case in reversed(networks) if reverse else networks:
            name = name_case(network, layout)
            cases.append(case | {"name": name, "params": case["params"] | shared | params})
    suite = {"schema": "spbench.suite/1", "name": "suite", "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless"]
        command += ["--home", folder, "--json", str(report), "--no-samples"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        cases_of_report: list[dict[str, Any]] = json.loads(report.read_text())["cases"]
    return {case["name"]: case["metrics"]["time_ms"]["value"] for case in cases_of_report}


def name_case(network: str, layout: str) -> str:
    return f"{network} {layout}".replace(" ", "-")


if __name__ == "__main__":
    main()
