"""Clusters as they are named in a few words: machines, a preset, a file, or a run."""

from __future__ import annotations

from pathlib import Path

from spbench.errors import UsageError, did_you_mean
from spbench.planner.cluster.machines import PRESETS, Cluster, cluster_from_ends
from spbench.planner.cluster.measured import cluster_from_run
from spbench.planner.cluster.yaml_file import load_cluster
from spbench.planner.errors import PlannerError
from spbench.record.runs.folder import find_run

_MOST_DIGITS = 100


def machines_cluster(text: str, option: str = "") -> Cluster:
    """Return the cluster of ``8,16``: where each machine's devices end.

    Args:
        text: The numbers.
        option: What stands before them in an error, with a blank behind it.

    Raises:
        PlannerError: They are no such numbers.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise PlannerError(
            f"{option}{text}: write where each machine's devices end: 8,16 is two of 8"
        )
    if max(map(len, words)) > _MOST_DIGITS:
        told = f"{option}has" if option else "the machines have"
        raise PlannerError(f"{told} a number of over {_MOST_DIGITS} digits; give a smaller one")
    return cluster_from_ends([int(word) for word in words])


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


def cluster_of_words(text: str, home: Path, folder: Path) -> Cluster:
    """Return the cluster that a text names in any of the four ways.

    Args:
        text: ``8,16``, ``dapple-a``, a YAML file, or a run of link.pingpong.
        home: The folder of the runs.
        folder: Where a file is looked for.

    Raises:
        UsageError: It names none, or one that cannot be read.
    """
    text = text.strip()
    if not text:
        raise PlannerError("say where to plan for: machines as 8,16, a preset, a file or a run")
    if text[0].isdecimal() and not set(text) - set("0123456789, "):
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
            f"{text} is no machines as 8,16, no file, none of {known}, and no run: {error}"
        ) from None
    return cluster_from_run(run)
