"""The machines of a run: two runs compare where these are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spbench.report.recorded import RecordedRun

_OF_CONSOLE = {"processor": "processor", "cores": "cores"}
_OF_RANKS = {"mpi": "MPI library", "torch": "torch"}


def unlike(a: RecordedRun, b: RecordedRun) -> str | None:
    """Return what differs between the machines of two runs, or None.

    What a run does not tell is left out: older records have less.
    """
    mine, others = dict(_known(a)), dict(_known(b))
    told = [
        f"{name} {mine[name]} in a, {others[name]} in b"
        for name in mine
        if name in others and mine[name] != others[name]
    ]
    return "; ".join(told) or None


def _known(run: RecordedRun) -> Iterator[tuple[str, str]]:
    """Yield hosts, processor, cores and versions, as far as they are known."""
    hosts = {rank.host for case in run.cases.values() for rank in case.ranks if rank.host}
    if hosts:
        yield "hosts", ", ".join(sorted(hosts))
    yield from _named(run.environment, _OF_CONSOLE)
    ranks = run.environment.get("ranks")
    if isinstance(ranks, Mapping):
        yield from _named(ranks, _OF_RANKS)


def _named(facts: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, name in names.items():
        if facts.get(key) is not None:
            yield name, str(facts[key])
