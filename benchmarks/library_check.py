"""The time and the memory of the library's comparison with the user's module.

    python -m benchmarks.library_check [--rounds N]

Two ranks build each network without and with the comparison (`verify`), interleaved, and train it
for two steps. Prints medians over the rounds and their spread: the seconds of building the network,
and the peak memory of each rank. With 5 rounds it takes 8 minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.goals import make_argument_parser
from benchmarks.mpi_ranks import run_ranks

RANKS = 2
NETWORKS = {
    "tiles": "U-Net of 32 channels, 512x512, 1 image, 1x2 tiles",
    "stages": "U-Net of 64 channels, 256x256, 2 images, 2 stages",
    "tokens": "8 blocks of linear layers, 196 tokens, 4 images, 2 stages",
}
Run = dict[str, Any]


def main() -> int:
    """Run all rounds, and print the figures of each network."""
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    for network, description in NETWORKS.items():
        runs: dict[str, list[Run]] = {"without": [], "with": []}
        for _ in range(rounds):
            runs["without"].append(_run_ranks(network))
            runs["with"].append(_run_ranks(network, "verify"))
        print(description)
        for name, runs_of_kind in runs.items():
            seconds = _format_median([run["seconds"] for run in runs_of_kind], ".1f")
            peaks = []
            for rank in range(RANKS):
                peak = _format_median([run["peaks"][rank] for run in runs_of_kind], ",.0f")
                peaks.append(f"rank {rank} {peak} MiB")
            print(f"  {name:7}  built in {seconds} s, peak of {', '.join(peaks)}", flush=True)
    return 0


def _run_ranks(network: str, *options: str) -> Run:
    with TemporaryDirectory() as folder:
        output = Path(folder) / "figures.json"
        code = run_ranks("benchmarks.library_check_ranks", RANKS, output, network, *options)
        if code:
            sys.exit(code)
        figures: Run = json.loads(output.read_text())
    return figures


def _format_median(values: Sequence[float], form: str) -> str:
    """Return the median of values with their minimum and maximum."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    sys.exit(main())
