"""Arguments of ``spbench plan``, from words to batch sizes and a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from spbench.planner.cluster.machines import Cluster

MOST_BATCHES = 10_000
MOST_DIGITS = 100


def check_choice(option: str, word: str, known: Sequence[str]) -> None:
    """Refuse a word that an option does not know.

    Raises:
        UsageError: It does not.
    """
    if word not in known:
        near = did_you_mean(word, known) or f" ({', '.join(known)})"
        raise UsageError(f"{option} {word}: there is no such {option.lstrip('-')}{near}")


def parse_counts(option: str, text: str) -> list[int]:
    """Return the numbers of ``1,2,4``.

    Raises:
        UsageError: It is no list of whole numbers above 0.
    """
    return _numbers(option, text, text.split(","))


def _numbers(option: str, text: str, words: Sequence[str]) -> list[int]:
    words = [word.strip() for word in words]
    if max(map(len, words)) > MOST_DIGITS:
        raise UsageError(f"{option} has a number of over {MOST_DIGITS} digits; give a smaller one")
    if not all(word.isascii() and word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"{option} {text}: write whole numbers above 0, as in 1,2,4")
    return [int(word) for word in words]


def parse_batch_sizes(text: str) -> list[int]:
    """Return the numbers of ``32,64:4096:64``: 32, and from 64 to 4096 in steps of 64.

    Raises:
        UsageError: It is no such text, or has too many numbers.
    """
    option = "--global-batch-size"
    found: dict[int, None] = {}
    for word in text.split(","):
        parts = _numbers(option, text, word.split(":"))
        if len(parts) not in (1, 3) or (len(parts) == 3 and parts[1] < parts[0]):
            raise UsageError(f"{option} {text}: write numbers, or first:last:step as 64:4096:64")
        first, last, step = parts if len(parts) == 3 else (parts[0], parts[0], 1)
        if (last - first) // step >= MOST_BATCHES - len(found):
            raise UsageError(f"{option} {text}: these are more than {MOST_BATCHES} batch sizes")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    return list(found)


def find_requested_cluster(
    machines: str | None, cluster: str | None, cluster_from: str | None, home: Path
) -> Cluster:
    """Return the cluster that exactly one of three options names.

    Raises:
        UsageError: Not one of them is given, or it cannot be read.
    """
    from spbench.planner.cluster.lookup import machines_cluster, named_cluster
    from spbench.planner.cluster.measured import cluster_from_run
    from spbench.record.runs.folder import find_run

    if [machines, cluster, cluster_from].count(None) != 2:
        raise UsageError("say where to plan for by one of --machines, --cluster and --cluster-from")
    if machines is not None:
        return machines_cluster(machines, "--machines ")
    if cluster_from is not None:
        return cluster_from_run(find_run(home, cluster_from))
    assert cluster is not None  # else none would be given
    return named_cluster(cluster, Path(), "--cluster ")
