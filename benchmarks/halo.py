"""Compare spbench's halo exchange with the reference's way, and with its own limit.

    python -m benchmarks.halo [--rounds 5]

The reference's way (`gloo_halo`) and spbench run by turns, so that a noisy neighbour troubles all
alike; spbench runs as users run it, and each of its results is checked. Prints medians over the
rounds. An exchange's own limit is a goal only for ranks with a core each. Then operators: what
overlaps within a host, where cores copy all data themselves (`network` has the other case),
and fused layers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Figure, table

GRIDS = {"2-ranks-vertical": "1x2", "4-ranks-vertical": "1x4", "4-ranks-square": "2x2"}
LEAST = {"2-ranks-vertical": 4.0, "4-ranks-square": 8.0}
"""The factor by which ours is faster than the reference's way."""
MOST_OF_LIMIT = 1.3
EXCHANGE = {"image_size": 1024, "in_channels": 3, "halo_len": 3}
COMPUTE = {
    "image_size": 512,
    "in_channels": 64,
    "out_channels": 64,
    "halo_len": 1,
    "grid": "1x2",
    "iterations": 10,
}
TRANSPORTS = ("shm", "packed")
FUSED = {"image_size": 256, "grid": "2x2", "num_layers": 4, "iterations": 100}
FUSED_CASES = {
    "latency-bound": {"in_channels": 1, "out_channels": 1},
    "compute-bound": {"in_channels": 32, "out_channels": 32, "iterations": 10},
}
Cases = dict[str, dict[str, Any]]
"""Cases of a report by their ids."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")
    parser.add_argument("--iterations", type=int, default=300, help="exchanges a run")
    words = parser.parse_args()
    gloo: list[dict[str, float]] = []
    ours: list[Cases] = []
    for _ in range(words.rounds):
        gloo.append({name: run_gloo(grid, words.iterations) for name, grid in GRIDS.items()})
        ours.append(run_suite(exchange_cases(words.iterations)))
    cores = len(os.sched_getaffinity(0))
    print(f"exchange: medians of {words.rounds} rounds; {cores} cores\n")
    print(exchanges(gloo, ours, cores))
    operators = run_suite(operator_cases())
    print(f"\noperators: one run\n\n{overlap(operators)}\n\n{fused(operators)}")


def run_gloo(grid: str, iterations: int) -> float:
    """Return the median ms of the reference's way."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in EXCHANGE.items()]
    command = [sys.executable, "-m", "benchmarks.gloo_halo", *flags]
    output = run([*command, "--grid", grid, "--iterations", str(iterations)])
    return float(json.loads(output)["time_ms"])


def exchange_cases(iterations: int) -> list[dict[str, Any]]:
    params = {"iterations": iterations, "warmup": 20}
    return [
        {"name": name, "benchmark": "halo.exchange", "params": EXCHANGE | params | {"grid": grid}}
        for name, grid in GRIDS.items()
    ]


def operator_cases() -> list[dict[str, Any]]:
    cases = [
        {
            "name": f"overlap-{mode}-{transport}",
            "benchmark": "halo.compute",
            "params": COMPUTE | {"overlap": mode, "transport": transport},
        }
        for mode in ("on", "off")
        for transport in TRANSPORTS
    ]
    return cases + [
        {"name": name, "benchmark": "halo.fused", "params": FUSED | channels}
        for name, channels in FUSED_CASES.items()
    ]


def run_suite(cases: list[dict[str, Any]]) -> Cases:
    """Run cases through spbench, and return the report's."""
    suite = {"schema": "spbench.suite/1", "name": "halo-figures", "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.yaml"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        spbench = [sys.executable, "-m", "spbench", "run", str(path), "--headless"]
        run([*spbench, "--home", folder, "--no-samples", "--json", str(report)])
        return {case["id"]: case for case in json.loads(report.read_text())["cases"]}


def run(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(
            f"halo: {' '.join(command)}: exit {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
    return ended.stdout


def exchanges(gloo: list[dict[str, float]], ours: list[Cases], cores: int) -> str:
    figures = []
    for name in GRIDS:
        theirs = median(one[name] for one in gloo)
        mine = median(metric(one, name, "time_ms") for one in ours)
        limit = median(one[name]["limits"]["time_ms"]["value"] for one in ours)
        transports = sorted({one[name]["choices"]["transport"]["value"] for one in ours})
        crowded = ours[0][name]["np"] > cores
        figures += [
            Figure(f"{name}: gloo", theirs, "ms"),
            Figure(f"{name}: spbench ({', '.join(transports)})", mine, "ms"),
            Figure(f"{name}: faster by", theirs / mine, "times", least=LEAST.get(name)),
            Figure(f"{name}: own limit", limit, "ms"),
            Figure(
                f"{name}: of its limit",
                mine / limit,
                "times",
                most=None if crowded else MOST_OF_LIMIT,
            ),
        ]
    return table(figures)


def overlap(cases: Cases) -> str:
    figures = []
    for transport in TRANSPORTS:
        on, off = (f"overlap-{mode}-{transport}" for mode in ("on", "off"))
        if "overlap" in cases[on]["metrics"]:
            hidden = metric(cases, on, "overlap")
            figures.append(Figure(f"{transport}: share hidden, by cores that copy", hidden, ""))
        figures += [
            Figure(f"{transport}: {name}", metric(cases, on, name), "")
            for name in ("exchange_ms", "pack_ms", "wait_ms", "compute_ms", "speedup")
        ]
        figures += [
            Figure(f"{transport}: time, overlap {mode}", metric(cases, case, "time_ms"), "ms")
            for mode, case in (("on", on), ("off", off))
        ]
    return table(figures)


def fused(cases: Cases) -> str:
    figures = []
    for name in FUSED_CASES:
        goal = 1.0 if name.startswith("latency") else None
        figures += [
            Figure(f"{name}: fused", metric(cases, name, "time_ms"), "ms"),
            Figure(f"{name}: unfused", metric(cases, name, "unfused_ms"), "ms"),
            Figure(f"{name}: faster by", metric(cases, name, "speedup"), "times", least=goal),
        ]
    return table(figures)


def metric(cases: Cases, case: str, name: str) -> float:
    """Return a case's metric."""
    return float(cases[case]["metrics"][name]["value"])


if __name__ == "__main__":
    main()
