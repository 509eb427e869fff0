"""Measure the planner: seconds of plans, growth, and errors of predicted steps.

    python -m benchmarks.planner [--profiles FOLDER] [--verify N]

Plans are timed in this process, on one core, after import, once each. With ``--profiles``, a folder
of torchgraph profiles from the DAPPLE repository, those are timed too. So are nine batch sizes of
one profile on all cores, in the modes of `spbench plan` and of HPGO. Steps of a ResNet as a
pipeline and as two replicas are predicted and measured on two ranks of this machine. Each
measurement follows a profile with both cores busy, and is repeated ``--verify`` times; one takes
about two minutes.
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

from benchmarks.goals import Figure, format_figures, make_argument_parser

from spbench.planner.cluster.machines import Cluster, make_cluster_from_ends
from spbench.planner.planning import find_default_jobs, plan, plan_many
from spbench.planner.plans import Mode
from spbench.planner.profile.files import load_profile
from spbench.planner.profile.layers import LayerProfile, Profile

TWO_CORES = Path(__file__).parents[1] / "docs" / "examples" / "two-cores.yaml"
PUBLISHED_PROFILES = (
    ("vgg-19", 32, 2048),
    ("xlnet-36", 1, 128),
    ("bert-48", 2, 64),
    ("amoeba-36", 1, 128),
)
"""Profiles, the batch size of their measurement, and the batch size of a step."""
BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)
LAYERS = (12, 25, 50, 100, 200, 400)
_STEP = re.compile(r"^step .* ([-+]\d+\.\d) %$", re.MULTILINE)


def main() -> None:
    parser = make_argument_parser(__doc__)
    parser.add_argument("--profiles", type=Path, help="a folder of torchgraph profiles")
    parser.add_argument("--verify", type=int, default=5, help="measured steps (default: 5)")
    options = parser.parse_args()
    plan(make_profile(2), make_cluster([2]), 4, mode="hpgo")  # imports the planner's modules
    figures = [
        *(time_published_profiles(options.profiles) if options.profiles else ()),
        *time_growth(),
    ]
    if options.verify:
        figures += measure_errors(options.verify)
    print(format_figures(figures))


def time_published_profiles(folder: Path) -> Iterator[Figure]:
    """Yield the seconds of plans of published profiles."""
    wide = make_cluster([8, 8]), make_cluster([1] * 16)
    larger = make_cluster([8] * 3), make_cluster([16] * 2), make_cluster([16] * 4)
    for name, measured_at, batch in PUBLISHED_PROFILES:
        profile = load_profile(_find_profile(folder, name), measured_at)
        for clusters, limit in ((wide, 0.15), (larger, 2.0)):
            for cluster in clusters:
                seconds = time_plan(profile, cluster, batch, "hpgo")
                yield Figure(f"hpgo mode, {name} on {cluster.name}", seconds, "s", maximum=limit)
    profile = load_profile(_find_profile(folder, "vgg-19"), 32)
    times = [time_plan(profile, make_cluster([8, 8]), batch, "best") for batch in BATCHES]
    name = f"best mode, vgg-19 on 2x8, {len(BATCHES)} batch sizes"
    yield Figure(name, sum(times), "s")
    start = perf_counter()
    jobs = find_default_jobs(os.environ)
    plan_many(profile, make_cluster([8, 8]), BATCHES, jobs=jobs)
    yield Figure(f"{name}, {jobs} processes", perf_counter() - start, "s", maximum=5.0)
    profile = load_profile(_find_profile(folder, "gnmt-16"), 64)
    seconds = time_plan(profile, make_cluster([8, 8]), 1024, "hpgo")
    yield Figure("hpgo mode, gnmt-16 on 2x8", seconds, "s", maximum=10.0)
    profile = load_profile(_find_profile(folder, "bert-48"), 2)
    seconds = time_plan(profile, make_cluster([8] * 128), 1024, "best")
    yield Figure("best mode, bert-48 on 128x8", seconds, "s", maximum=60.0)


def _find_profile(folder: Path, name: str) -> Path:
    """Return the path of a profile; its name contains the measured batch size."""
    [path] = folder.glob(f"{name}-pbs-*[0-9].txt")
    return path


def time_growth() -> Iterator[Figure]:
    """Yield the growth of the time of best mode with devices and with layers."""
    by_devices = [
        time_plan(make_profile(50), make_cluster([8] * (count // 8)), 1024) for count in DEVICES
    ]
    for count, seconds in zip(DEVICES, by_devices, strict=True):
        yield Figure(f"best mode, 50 blocks on {count} devices", seconds, "s")
    yield Figure("growth with devices", fit_exponent(DEVICES, by_devices), "power")
    by_layers = [time_plan(make_profile(count), make_cluster([8, 8]), 1024) for count in LAYERS]
    for count, seconds in zip(LAYERS, by_layers, strict=True):
        yield Figure(f"best mode, {count} blocks on 16 devices", seconds, "s")
    yield Figure("growth with layers", fit_exponent(LAYERS, by_layers), "power")


def time_plan(profile: Profile, cluster: Cluster, batch: int, mode: Mode = "best") -> float:
    """Return the CPU seconds of a plan."""
    start = process_time()
    plan(profile, cluster, batch, mode=mode)
    return process_time() - start


def fit_exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent of time over size, by linear regression of logarithms."""
    return linear_regression(
        [log(number) for number in sizes], [log(number) for number in seconds]
    ).slope


def make_cluster(sizes: Sequence[int]) -> Cluster:
    """Return machines of these numbers of devices, with HPGO's links."""
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return make_cluster_from_ends(ends)


def make_profile(block_count: int) -> Profile:
    """Return a chain of equal blocks like those of a large transformer, at one sample."""
    layers = tuple(
        LayerProfile(f"block{index}", "block", 4.0, 8.0, 2e6, 5e7) for index in range(block_count)
    )
    return Profile(
        f"{block_count}-blocks",
        1,
        layers,
        tuple((index - 1, index) for index in range(1, block_count)),
    )


def measure_errors(rounds: int) -> Iterator[Figure]:
    """Yield the error of predicted steps, for a pipeline and for two replicas."""
    errors_by_name: dict[str, list[float]] = {"pipeline": [], "two replicas": []}
    measuring = ["--set=depth=20", "--set=image_size=64", "--set=iterations=20", "--quiet"]
    measuring += ["--batch-sizes", "1,2,4,8", "--busy", "--np", "2"]
    planning = ["--cluster", str(TWO_CORES), "--global-batch-size", "16", "--verify", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        profile = str(Path(folder) / "resnet.json")
        for _ in range(rounds):
            for name, options in (("pipeline", ["--micro-batch-size", "1"]), ("two replicas", [])):
                # Profile right before the run, because other work on the machine changes.
                _run_spbench(folder, "profile", "resnet", *measuring, "--output", profile)
                text = _run_spbench(folder, "plan", profile, *planning, *options)
                print(text, file=sys.stderr)
                errors_by_name[name].append(_parse_error(text))
    for name, values in errors_by_name.items():
        error_texts = " ".join(f"{error:+.1f}" for error in values)
        yield Figure(
            f"{name}, error of the step, median", median(map(abs, values)), "%", maximum=15
        )
        print(f"{name}: {error_texts}", file=sys.stderr)


def _run_spbench(folder: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "spbench", *arguments, "--home", folder]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _parse_error(text: str) -> float:
    """Return the error of a predicted step in percent; positive if it is too long."""
    match = _STEP.search(text)
    assert match is not None, text
    return float(match[1])


if __name__ == "__main__":
    main()
