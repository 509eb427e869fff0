"""Measure the planner: seconds of a plan, their growth, and predicted against measured steps.

    python -m benchmarks.planner [--profiles FOLDER] [--verify N]

Plans are timed in this process, on one core, after import, each once; with ``--profiles``, a folder
of torchgraph profiles as the DAPPLE repository has them, those too, and nine batch sizes of one
on all cores, as `spbench plan` makes them and as HPGO does. Steps of a ResNet as a pipeline
and as two replicas are predicted and measured on two ranks of this machine, each right after a
profile with both cores busy, as many times as ``--verify`` says; one takes some two minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import linear_regression, median
from time import perf_counter, process_time

from benchmarks.goals import Figure, argument_parser, table

from spbench.planner.cluster.machines import Cluster, cluster_from_ends
from spbench.planner.planning import default_jobs, plan, plan_many
from spbench.planner.plans import Mode
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import LayerProfile, Profile

TWO_CORES = Path(__file__).parents[1] / "docs" / "examples" / "two-cores.yaml"
KNOWN = (
    ("vgg-19", 32, 2048),
    ("xlnet-36", 1, 128),
    ("bert-48", 2, 64),
    ("amoeba-36", 1, 128),
)
"""Profiles, the samples they were measured at, and a step's."""
BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)
LAYERS = (12, 25, 50, 100, 200, 400)
_STEP = re.compile(r"^step .* ([-+]\d+\.\d) %$", re.MULTILINE)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--profiles", type=Path, help="a folder of torchgraph profiles")
    parser.add_argument("--verify", type=int, default=5, help="measured steps (default: 5)")
    words = parser.parse_args()
    plan(blocks(2), machines([2]), 4, mode="hpgo")  # so that what it needs is imported
    found = [*(known(words.profiles) if words.profiles else ()), *growth()]
    if words.verify:
        found += errors(words.verify)
    print(table(found))


def known(folder: Path) -> Iterator[Figure]:
    """Yield how long published profiles take."""
    wide = machines([8, 8]), machines([1] * 16)
    larger = machines([8] * 3), machines([16] * 2), machines([16] * 4)
    for name, measured_at, batch in KNOWN:
        profile = load_profile(_file(folder, name), measured_at)
        for places, most in ((wide, 0.15), (larger, 2.0)):
            for place in places:
                taken = seconds(profile, place, batch, "hpgo")
                yield Figure(f"hpgo mode, {name} on {place.name}", taken, "s", most=most)
    profile = load_profile(_file(folder, "vgg-19"), 32)
    each = [seconds(profile, machines([8, 8]), batch, "best") for batch in BATCHES]
    name = f"best mode, vgg-19 on 2x8, {len(BATCHES)} batch sizes"
    yield Figure(name, sum(each), "s")
    start = perf_counter()
    jobs = default_jobs(os.environ)
    plan_many(profile, machines([8, 8]), BATCHES, jobs=jobs)
    yield Figure(f"{name}, {jobs} processes", perf_counter() - start, "s", most=5.0)
    profile = load_profile(_file(folder, "gnmt-16"), 64)
    taken = seconds(profile, machines([8, 8]), 1024, "hpgo")
    yield Figure("hpgo mode, gnmt-16 on 2x8", taken, "s", most=10.0)
    profile = load_profile(_file(folder, "bert-48"), 2)
    taken = seconds(profile, machines([8] * 128), 1024, "best")
    yield Figure("best mode, bert-48 on 128x8", taken, "s", most=60.0)


def _file(folder: Path, name: str) -> Path:
    """Return the profile of that name; its file says at which batch size it was measured."""
    [path] = folder.glob(f"{name}-pbs-*[0-9].txt")
    return path


def growth() -> Iterator[Figure]:
    """Yield how the time of best mode grows with devices and with layers."""
    by_devices = [seconds(blocks(50), machines([8] * (each // 8)), 1024) for each in DEVICES]
    for each, taken in zip(DEVICES, by_devices, strict=True):
        yield Figure(f"best mode, 50 blocks on {each} devices", taken, "s")
    yield Figure("growth with devices", power(DEVICES, by_devices), "power")
    by_layers = [seconds(blocks(each), machines([8, 8]), 1024) for each in LAYERS]
    for each, taken in zip(LAYERS, by_layers, strict=True):
        yield Figure(f"best mode, {each} blocks on 16 devices", taken, "s")
    yield Figure("growth with layers", power(LAYERS, by_layers), "power")


def seconds(profile: Profile, cluster: Cluster, batch: int, mode: Mode = "best") -> float:
    """Return the CPU seconds of a plan."""
    start = process_time()
    plan(profile, cluster, batch, mode=mode)
    return process_time() - start


def power(sizes: Sequence[int], taken: Sequence[float]) -> float:
    """Return the exponent that fits best: of time over size, in logarithms."""
    return linear_regression([log(each) for each in sizes], [log(each) for each in taken]).slope


def machines(sizes: Sequence[int]) -> Cluster:
    """Return machines of so many devices, with HPGO's links."""
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    return cluster_from_ends(ends)


def blocks(count: int) -> Profile:
    """Return a chain of equal blocks like those of a large transformer, at one sample."""
    layers = tuple(LayerProfile(f"block{at}", "block", 4.0, 8.0, 2e6, 5e7) for at in range(count))
    return Profile(f"{count}-blocks", 1, layers, tuple((at - 1, at) for at in range(1, count)))


def errors(times: int) -> Iterator[Figure]:
    """Yield by how much predicted steps are off, of a pipeline and of two replicas."""
    found: dict[str, list[float]] = {"pipeline": [], "two replicas": []}
    measuring = ["--set=depth=20", "--set=image_size=64", "--set=iterations=20", "--quiet"]
    measuring += ["--batch-sizes", "1,2,4,8", "--busy", "--np", "2"]
    planning = ["--cluster", str(TWO_CORES), "--global-batch-size", "16", "--verify", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        profile = str(Path(folder) / "resnet.json")
        for _ in range(times):
            for name, more in (("pipeline", ["--micro-batch-size", "1"]), ("two replicas", [])):
                # Right before the run: what else the machine does changes with time.
                _spbench(folder, "profile", "resnet", *measuring, "--output", profile)
                text = _spbench(folder, "plan", profile, *planning, *more)
                print(text, file=sys.stderr)
                found[name].append(_error(text))
    for name, errors_ in found.items():
        each = " ".join(f"{error:+.1f}" for error in errors_)
        yield Figure(f"{name}, error of the step, median", median(map(abs, errors_)), "%", most=15)
        print(f"{name}: {each}", file=sys.stderr)


def _spbench(folder: str, *words: str) -> str:
    command = [sys.executable, "-m", "spbench", *words, "--home", folder]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _error(text: str) -> float:
    """Return by how much percent the predicted step of a verification is too long."""
    found = _STEP.search(text)
    assert found is not None, text
    return float(found[1])


if __name__ == "__main__":
    main()
