"""Arguments of ``spbench plan``: batch sizes and the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spbench.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from spbench.planner.cluster.machines import Cluster

MAX_BATCHES = 10_000
MAX_DIGITS = 100


def check_choice(option: str, given_value: str, choices: Sequence[str]) -> None:
    """Reject an unknown value of an option.

    Raises:
        UsageError: The value is unknown.
    """
    if given_value not in choices:
        suggestion = did_you_mean(given_value, choices) or f" ({', '.join(choices)})"
        raise UsageError(
            f"{option} {given_value}: there is no such {option.lstrip('-')}{suggestion}"
        )


def parse_counts(option: str, text: str) -> list[int]:
    """Return the numbers of ``1,2,4``.

    Raises:
        UsageError: The text is not a list of whole numbers above 0.
    """
    return _parse_numbers(option, text, text.split(","))


def _parse_numbers(option: str, text: str, parts: Sequence[str]) -> list[int]:
    parts = [part.strip() for part in parts]
    if max(map(len, parts)) > MAX_DIGITS:
        raise UsageError(f"{option} has a number of over {MAX_DIGITS} digits; give a smaller one")
    if not all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {text}: write whole numbers above 0, as in 1,2,4")
    return [int(part) for part in parts]


def parse_batch_sizes(text: str) -> list[int]:
    """Return the numbers of ``32,64:4096:64``: 32, and 64 to 4096 in steps of 64.

    Raises:
        UsageError: The text is invalid, or has too many numbers.
    """
    option = "--global-batch-size"
    sizes: dict[int, None] = {}
    for item_text in text.split(","):
        parts = _parse_numbers(option, text, item_text.split(":"))
        if len(parts) not in (1, 3) or (len(parts) == 3 and parts[1] < parts[0]):
            raise UsageError(f"{option} {text}: write numbers, or first:last:step as 64:4096:64")
        first, last, step = parts if len(parts) == 3 else (parts[0], parts[0], 1)
        if (last - first) // step >= MAX_BATCHES - len(sizes):
            raise UsageError(f"{option} {text}: these are more than {MAX_BATCHES} batch sizes")
        sizes.update(dict.fromkeys(range(first, last + 1, step)))
    return list(sizes)


def find_requested_cluster(
    machines: str | None, cluster: str | None, cluster_from: str | None, home: Path
) -> Cluster:
    """Return the cluster that exactly one of three options names.

    Raises:
        UsageError: None or several are given, or the cluster cannot be read.
    """
    from spbench.planner.cluster.lookup import machines_cluster, named_cluster
    from spbench.planner.cluster.measured import build_measured_cluster
    from spbench.record.runs.folder import find_run

    if [machines, cluster, cluster_from].count(None) != 2:
        raise UsageError("say where to plan for by one of --machines, --cluster and --cluster-from")
    if machines is not None:
        return machines_cluster(machines, "--machines ")
    if cluster_from is not None:
        return build_measured_cluster(find_run(home, cluster_from))
    assert cluster is not None  # exactly one is given
    return named_cluster(cluster, Path(), "--cluster ")
