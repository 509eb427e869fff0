"""Compare spbench's halo exchange with the reference's and with its own limit.

    python -m benchmarks.halo [--rounds 5]

The reference's exchange (`gloo_halo`) and spbench are interleaved, so that other work on the
machine affects both. spbench runs like a user's run, with checked results. Prints medians over the
rounds. The exchange's limit is a goal only if each rank has a core. Then operators are measured:
the overlap within a host, where cores copy all data (`network` measures the other case), and fused
layers.
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

from benchmarks.goals import Figure, format_figures

GRIDS = {"2-ranks-vertical": "1x2", "4-ranks-vertical": "1x4", "4-ranks-square": "2x2"}
MIN_SPEEDUPS = {"2-ranks-vertical": 4.0, "4-ranks-square": 8.0}
"""The factor by which spbench is faster than the reference."""
MAX_OF_LIMIT = 1.3
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
    options = parser.parse_args()
    gloo: list[dict[str, float]] = []
    spbench: list[Cases] = []
    for _ in range(options.rounds):
        gloo.append({name: run_gloo(grid, options.iterations) for name, grid in GRIDS.items()})
        spbench.append(run_suite(build_exchange_cases(options.iterations)))
    cores = len(os.sched_getaffinity(0))
    print(f"exchange: medians of {options.rounds} rounds; {cores} cores\n")
    print(format_exchanges(gloo, spbench, cores))
    operators = run_suite(build_operator_cases())
    print(f"\noperators: one run\n\n{format_overlap(operators)}\n\n{format_fused(operators)}")


def run_gloo(grid: str, iterations: int) -> float:
    """Return the median time in ms of the reference's exchange."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in EXCHANGE.items()]
    command = [sys.executable, "-m", "benchmarks.gloo_halo", *flags]
    output = run([*command, "--grid", grid, "--iterations", str(iterations)])
    return float(json.loads(output)["time_ms"])


def build_exchange_cases(iterations: int) -> list[dict[str, Any]]:
    params = {"iterations": iterations, "warmup": 20}
    return [
        {"name": name, "benchmark": "halo.exchange", "params": EXCHANGE | params | {"grid": grid}}
        for name, grid in GRIDS.items()
    ]


def build_operator_cases() -> list[dict[str, Any]]:
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
    """Run cases with spbench, and return the cases of the report."""
    suite = {"schema": "spbench.suite/1", "name": "halo-figures", "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.yaml"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless"]
        run([*command, "--home", folder, "--no-samples", "--json", str(report)])
        return {case["id"]: case for case in json.loads(report.read_text())["cases"]}


def run(command: list[str]) -> str:
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        sys.exit(
            f"halo: {' '.join(command)}: exit {completed.returncode}\n"
            f"{completed.stdout}{completed.stderr}"
        )
    return completed.stdout


def format_exchanges(gloo: list[dict[str, float]], spbench: list[Cases], cores: int) -> str:
    figures = []
    for name in GRIDS:
        gloo_ms = median(times[name] for times in gloo)
        spbench_ms = median(read_metric(times, name, "time_ms") for times in spbench)
        limit_ms = median(times[name]["limits"]["time_ms"]["value"] for times in spbench)
        transports = sorted({times[name]["choices"]["transport"]["value"] for times in spbench})
        crowded = spbench[0][name]["np"] > cores
        figures += [
            Figure(f"{name}: gloo", gloo_ms, "ms"),
            Figure(f"{name}: spbench ({', '.join(transports)})", spbench_ms, "ms"),
            Figure(
                f"{name}: faster by", gloo_ms / spbench_ms, "times", minimum=MIN_SPEEDUPS.get(name)
            ),
            Figure(f"{name}: own limit", limit_ms, "ms"),
            Figure(
                f"{name}: of its limit",
                spbench_ms / limit_ms,
                "times",
                maximum=None if crowded else MAX_OF_LIMIT,
            ),
        ]
    return format_figures(figures)


def format_overlap(cases: Cases) -> str:
    figures = []
    for transport in TRANSPORTS:
        overlapped, sequential = (f"overlap-{mode}-{transport}" for mode in ("on", "off"))
        if "overlap" in cases[overlapped]["metrics"]:
            hidden = read_metric(cases, overlapped, "overlap")
            figures.append(Figure(f"{transport}: share hidden, by cores that copy", hidden, ""))
        figures += [
            Figure(f"{transport}: {name}", read_metric(cases, overlapped, name), "")
            for name in ("exchange_ms", "pack_ms", "wait_ms", "compute_ms", "speedup")
        ]
        figures += [
            Figure(f"{transport}: time, overlap {mode}", read_metric(cases, case, "time_ms"), "ms")
            for mode, case in (("on", overlapped), ("off", sequential))
        ]
    return format_figures(figures)


def format_fused(cases: Cases) -> str:
    figures = []
    for name in FUSED_CASES:
        goal = 1.0 if name.startswith("latency") else None
        figures += [
            Figure(f"{name}: fused", read_metric(cases, name, "time_ms"), "ms"),
            Figure(f"{name}: unfused", read_metric(cases, name, "unfused_ms"), "ms"),
            Figure(
                f"{name}: faster by", read_metric(cases, name, "speedup"), "times", minimum=goal
            ),
        ]
    return format_figures(figures)


def read_metric(cases: Cases, case: str, name: str) -> float:
    """Return a case's metric."""
    return float(cases[case]["metrics"][name]["value"])


if __name__ == "__main__":
    main()
