"""Look up a cluster by a text: machines, a preset, a file, or a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spbench.errors import UsageError, did_you_mean
from spbench.planner.cluster.cluster_file import load_cluster
from spbench.planner.cluster.machines import (
    PRESETS,
    Cluster,
    make_cluster_from_ends,
    make_hpgo_cluster,
)
from spbench.planner.cluster.measured import build_measured_cluster
from spbench.planner.cluster.this_machine import THIS_MACHINE, build_this_machine
from spbench.planner.errors import PlannerError
from spbench.planner.ranges import MAX_DEVICES
from spbench.record.runs.folder import find_run
from spbench.suites.pipe_files import expand_user_path

NAMES = (THIS_MACHINE, *PRESETS)
"""The clusters that have a name."""
_MAX_DIGITS = 100


def machines_cluster(text: str, option: str = "") -> Cluster:
    """Return the cluster of ``4x8``, or of ``8,16``, the ends of machines.

    Args:
        text: Machines times devices, separated by commas (``2x8,1x4``); or rising device numbers,
            each the end of a machine.
        option: A prefix for errors, with a blank at its end.

    Raises:
        PlannerError: The text is invalid.
    """
    terms = [term.strip() for term in text.split(",")]
    factors_by_term = [term.split("x") for term in terms]
    numbers = [number for factors in factors_by_term for number in factors]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise PlannerError(
            f"{option}{text}: write machines times devices: 4x8 is four machines of 8 devices"
        )
    if max(map(len, numbers)) > _MAX_DIGITS:
        owner = f"{option}has" if option else "the machines have"
        raise PlannerError(f"{owner} a number of over {_MAX_DIGITS} digits; give a smaller one")
    if "x" not in text:
        return make_cluster_from_ends([int(term) for term in terms])
    return make_hpgo_cluster(
        text.replace(" ", ""), _parse_sizes(factors_by_term, f"{option}{text}")
    )


def _parse_sizes(factors_by_term: Sequence[Sequence[str]], text: str) -> list[int]:
    """Return the devices of each machine, from pairs of machines and devices."""
    devices_by_machine: list[int] = []
    for factors in factors_by_term:
        if len(factors) != 2:
            raise PlannerError(f"{text}: write each part as machines times devices, as in 2x8,1x4")
        machines, devices = map(int, factors)
        if machines * devices == 0:
            raise PlannerError(f"{text}: there must be at least 1 machine with 1 device")
        if sum(devices_by_machine) + machines * devices > MAX_DEVICES:
            raise PlannerError(f"{text}: give it at most {MAX_DEVICES} devices")
        devices_by_machine += [devices] * machines
    return devices_by_machine


def named_cluster(text: str, folder: Path, option: str = "") -> Cluster:
    """Return the cluster of a file, or that of a name if there is no such file.

    Args:
        text: The file or the name.
        folder: The folder of relative paths.
        option: A prefix for errors, with a blank at its end.

    Raises:
        PlannerError: There is no such file or preset, or the file has errors.
        UsageError: The home directory of the file is unknown.
    """
    path = expand_user_path(folder, text)
    if path.exists():
        return load_cluster(path)
    if text == THIS_MACHINE:
        return build_this_machine()
    if text in PRESETS:
        return PRESETS[text]
    suggestion = did_you_mean(text, NAMES) or f"; clusters by name are {', '.join(NAMES)}"
    raise PlannerError(f"{option}{text}: there is no such file{suggestion}")


def find_cluster(text: str, home: Path, folder: Path) -> Cluster:
    """Return the cluster that a text names.

    Args:
        text: ``2x8``, ``8,16``, ``this-machine``, ``dapple-a``, a YAML file, or a run of
            link.pingpong.
        home: The folder of runs.
        folder: The folder of relative paths.

    Raises:
        UsageError: The text does not name a cluster, or it cannot be read.
    """
    text = text.strip()
    if not text:
        raise PlannerError(
            f"choose a cluster: {THIS_MACHINE}, machines times devices such as 2x8, a file, or a"
            " run of link.pingpong"
        )
    if text[0].isdecimal() and not set(text) - set("0123456789x, "):
        return machines_cluster(text)
    if text in NAMES or Path(text).suffix or expand_user_path(folder, text).exists():
        return named_cluster(text, folder)
    try:
        run = find_run(home, text)
    except UsageError as error:
        suggestion = did_you_mean(text, NAMES)
        if suggestion:
            raise PlannerError(f"there is no cluster {text}{suggestion}") from None
        names = ", ".join(NAMES)
        raise PlannerError(
            f"{text} is neither machines such as 2x8, a file, one of {names}, nor a run: {error}"
        ) from None
    return build_measured_cluster(run)
