"""Measure ``kvstore.push_pull`` with gradients by tensor, in buckets, and flat.

    python -m benchmarks.kvstore [--rounds 5] [--batches 10]

The gradients of resnet-50 are summed on 2 ranks, each bound to one core. The store allreduce runs
with the MPI's algorithm, with sums in shared memory and with torch.distributed's gloo; the other
stores run too. All runs are interleaved, so that other work on the machine affects all of them.
Prints medians over the rounds of each run's median batch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.commands import bind_options, find_program, run_command
from benchmarks.goals import Figure, format_figures, make_argument_parser

LINE = re.compile(r"^iter \d+, (\S+) sec", re.MULTILINE)
NETWORK = ("--network", "resnet", "--num-layers", "50", "--device", "cpu")
ALLREDUCE = ("--kv-store", "allreduce", "--gpus", "2")
RUNS: dict[str, tuple[str, ...]] = {
    "flat": (*ALLREDUCE, "--bucket", "flat"),
    "fused": (*ALLREDUCE, "--bucket", "fused"),
    "tensor": (*ALLREDUCE, "--bucket", "tensor"),
    "shared": (*ALLREDUCE, "--bucket", "fused", "--algorithm", "shared"),
    "gloo, tensor": (*ALLREDUCE, "--bucket", "tensor", "--algorithm", "gloo"),
    "gloo, flat": (*ALLREDUCE, "--bucket", "flat", "--algorithm", "gloo"),
    "local": ("--kv-store", "local", "--gpus", "2"),
    "device": ("--kv-store", "device", "--gpus", "2"),
    "local, by messages": ("--kv-store", "local", "--gpus", "2", "--sums", "messages"),
    "device, by messages": ("--kv-store", "device", "--gpus", "2", "--sums", "messages"),
    "dist_sync, 1 worker and 1 server": (
        *("--kv-store", "dist_sync", "--gpus", "1"),
        *("--num-workers", "1", "--num-servers", "1"),
    ),
}
"""The runs and their options; all on 2 ranks."""
MXNET_LOCAL_MS = 24.8
"""MXNet 1.9.1, store `local`, 2 CPU contexts, on the machine of docs/performance.md."""


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--batches", type=int, default=10, help="batches a run (default: 10)")
    options = parser.parse_args()
    mpirun = find_program("mpirun")
    launch = [mpirun, *bind_options(mpirun), "-n", "2", sys.executable, "-m", "mpi4py"]
    launch += ["-m", "spbench_workers", "kvstore.push_pull", *NETWORK]
    launch += ["--num-batches", str(options.batches), "--test-results", "off"]
    rounds = [
        {name: measure_batch([*launch, *more]) for name, more in RUNS.items()}
        for _ in range(options.rounds)
    ]
    print(f"resnet-50, 102.015648 MB, 2 ranks, median of {len(rounds)} rounds")
    print(format_figures(build_figures(rounds)))


def measure_batch(command: Sequence[str]) -> float:
    """Run a command; return the median time of a batch in ms."""
    seconds = [float(match) for match in LINE.findall(run_command([*command]))]
    return 1000 * median(seconds)


def build_figures(rounds: Sequence[dict[str, float]]) -> list[Figure]:
    ms = {name: median(ms_by_run[name] for ms_by_run in rounds) for name in RUNS}
    fused_ms = ms["fused"]
    return [
        *(Figure(name, value, "ms") for name, value in ms.items()),
        Figure("fused, speed over flat's", ms["flat"] / fused_ms, "times", minimum=0.8),
        Figure("tensor, speed over flat's", ms["flat"] / ms["tensor"], "times", minimum=0.5),
        Figure("flat, speed over gloo's", ms["gloo, flat"] / ms["flat"], "times"),
        Figure(
            "tensor, speed over gloo's", ms["gloo, tensor"] / ms["tensor"], "times", minimum=2.0
        ),
        Figure("fused, compared with MXNet's local", fused_ms, "ms", maximum=MXNET_LOCAL_MS),
        *(
            Figure(f"{name}, compared with MXNet's local", ms[name], "ms", maximum=MXNET_LOCAL_MS)
            for name in ("shared", "local", "device")
        ),
    ]


if __name__ == "__main__":
    main()
