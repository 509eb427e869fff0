"""Clusters as they are named in a few words: machines, a preset, a file, or a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spbench.errors import UsageError, did_you_mean
from spbench.planner.cluster.machines import (
    PRESETS,
    Cluster,
    cluster_from_ends,
    make_hpgo_cluster,
)
from spbench.planner.cluster.measured import cluster_from_run
from spbench.planner.cluster.yaml_file import load_cluster
from spbench.planner.errors import PlannerError
from spbench.planner.ranges import MAX_DEVICES
from spbench.record.runs.folder import find_run

_MOST_DIGITS = 100


def machines_cluster(text: str, option: str = "") -> Cluster:
    """Return the cluster of ``4x8``, or of ``8,16``: where each machine's devices end.

    Args:
        text: Machines times devices, several with commas between (``2x8,1x4``); or the ends.
        option: What stands before them in an error, with a blank behind it.

    Raises:
        PlannerError: They are no such numbers.
    """
    words = [word.strip() for word in text.split(",")]
    products = [word.split("x") for word in words]
    numbers = [number for product in products for number in product]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise PlannerError(
            f"{option}{text}: write machines times devices: 4x8 is four machines of 8 devices"
        )
    if max(map(len, numbers)) > _MOST_DIGITS:
        owner = f"{option}has" if option else "the machines have"
        raise PlannerError(f"{owner} a number of over {_MOST_DIGITS} digits; give a smaller one")
    if "x" not in text:
        return cluster_from_ends([int(word) for word in words])
    return make_hpgo_cluster(text.replace(" ", ""), _sizes_of(products, f"{option}{text}"))


def _sizes_of(products: Sequence[Sequence[str]], text: str) -> list[int]:
    """Return the devices of each machine, for machines times devices."""
    sizes: list[int] = []
    for product in products:
        if len(product) != 2:
            raise PlannerError(f"{text}: write each part as machines times devices, as in 2x8,1x4")
        machines, devices = map(int, product)
        if machines * devices == 0:
            raise PlannerError(f"{text}: there must be at least 1 machine with 1 device")
        if sum(sizes) + machines * devices > MAX_DEVICES:
            raise PlannerError(f"{text}: give it at most {MAX_DEVICES} devices")
        sizes += [devices] * machines
    return sizes


def named_cluster(text: str, folder: Path, option: str = "") -> Cluster:
    """Return the cluster of a file, or the preset of that name where no file has it.

    Args:
        text: The file or the name.
        folder: Where the file is looked for.
        option: What stands before it in an error, with a blank behind it.

    Raises:
        PlannerError: There is neither, or the file has errors.
    """
    path = folder / Path(text).expanduser()
    if path.exists():
        return load_cluster(path)
    if text in PRESETS:
        return PRESETS[text]
    near = did_you_mean(text, PRESETS) or f"; clusters by name are {', '.join(PRESETS)}"
    raise PlannerError(f"{option}{text}: there is no such file{near}")


def find_cluster(text: str, home: Path, folder: Path) -> Cluster:
    """Return the cluster that a text names in any of the four ways.

    Args:
        text: ``2x8``, ``8,16``, ``dapple-a``, a YAML file, or a run of link.pingpong.
        home: The folder of the runs.
        folder: Where a file is looked for.

    Raises:
        UsageError: It names none, or one that cannot be read.
    """
    text = text.strip()
    if not text:
        raise PlannerError("say where to plan for: machines such as 2x8, a preset, a file or a run")
    if text[0].isdecimal() and not set(text) - set("0123456789x, "):
        return machines_cluster(text)
    if text in PRESETS or Path(text).suffix or (folder / Path(text).expanduser()).exists():
        return named_cluster(text, folder)
    try:
        run = find_run(home, text)
    except UsageError as error:
        near = did_you_mean(text, PRESETS)
        if near:
            raise PlannerError(f"there is no cluster {text}{near}") from None
        known = ", ".join(PRESETS)
        raise PlannerError(
            f"{text} is neither machines such as 2x8, a file, one of {known}, nor a run: {error}"
        ) from None
    return cluster_from_run(run)
