"""Measure torchvision's ResNet-50 as a network of one's own beside the same network of spbench's.

    python -m benchmarks.imported_resnet [--rounds 9] [--size 128]

Both train on one process, on two stages and on two tiles, by turns, with one thread a rank. Figures
are medians over the rounds of the ratio of both times within a round, with the least and the most
of them. A round takes about a minute on two cores. It needs torchvision, over a torch without CUDA
too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Figure, argument_parser, table

LAYOUTS: dict[str, dict[str, Any]] = {
    "one process": {"scheme": "sequential", "parts": 2},
    "two stages": {"scheme": "lp", "parts": 2, "balance": "estimated"},
    "two tiles": {"scheme": "sp", "split_size": 1, "grid": "1x2", "parts": 2},
}
OURS: dict[str, Any] = {
    "benchmark": "model.resnet",
    "params": {"arch": "resnet50", "num_classes": 1000},
}
IMPORTED: dict[str, Any] = {
    "benchmark": "model.network",
    "params": {"network": "benchmarks.torchvision_networks:resnet50"},
}
MOST = 1.03
"""The most that an imported network's time may be of our own's."""


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds (default: 9)")
    parser.add_argument("--size", type=int, default=128, help="pixels a side (default: 128)")
    words = parser.parse_args()
    ratios: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    for turn in range(words.rounds):
        times = measured(words.size, reverse=bool(turn % 2))
        for layout, found in ratios.items():
            found.append(times[f"imported {layout}"] / times[f"ours {layout}"])
    print(f"ResNet-50 at {words.size}x{words.size}, imported over our own, {words.rounds} rounds")
    for layout, found in ratios.items():
        print(f"{layout}: {min(found):.3f} to {max(found):.3f}")
    print(table([Figure(one, median(found), "times", most=MOST) for one, found in ratios.items()]))


def measured(size: int, *, reverse: bool) -> dict[str, float]:
    """Run both in all layouts, one after the other; return the median step of each, in ms."""
    shared: dict[str, Any] = {"image_size": size, "batch_size": 4, "iterations": 5, "warmup": 2}
    shared |= {"validate": "off", "baseline": False}
    both = (("ours", OURS), ("imported", IMPORTED))
    cases = []
    for layout, params in LAYOUTS.items():
        for word, case in reversed(both) if reverse else both:
            name = f"{word} {layout}".replace(" ", "-")
            cases.append(case | {"name": name, "params": case["params"] | shared | params})
    suite = {"schema": "spbench.suite/1", "name": "suite", "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless"]
        command += ["--home", folder, "--json", str(report), "--no-samples"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found: list[dict[str, Any]] = json.loads(report.read_text())["cases"]
    return {case["name"].replace("-", " "): case["metrics"]["time_ms"]["value"] for case in found}


if __name__ == "__main__":
    main()
