"""The shares of the time of a case or of a rank, as bars."""

from __future__ import annotations

from collections.abc import Iterator

from spbench.record.case_state import CaseState
from spbench.record.coordinates import (
    describe_coordinates,
    list_coordinate_names,
    shorten_coordinates,
)
from spbench.record.shares import Shares, compute_all_shares, compute_shares, list_ranks_with_shares
from spbench.tui.widgets.stacked_bars import Bar, StackedBars

MAX_RANK_BARS = 24
"""Ranks that have a bar among a case's details."""

Row = tuple[str, Shares | None]
"""A bar's label, and what it shows; None where the rank told nothing."""


def build_case_bars(case: CaseState) -> list[StackedBars]:
    """Return for each metric that has parts a bar of all ranks, and one of each."""
    ranks = list_ranks_with_shares(case)
    shown = ranks[:MAX_RANK_BARS] if len(ranks) > 1 else []
    labels = dict(zip(shown, _labels(case, shown), strict=True))
    return [
        _bars(of, [("all ranks", of), *((labels[rank], _own(case, of, rank)) for rank in shown)])
        for of in compute_all_shares(case)
    ]


def build_rank_bars(case: CaseState, rank: int) -> list[StackedBars]:
    """Return for each metric that has parts the rank's bar, and that of all ranks."""
    return [
        _bars(of, [(f"rank {rank}", _own(case, of, rank)), ("all ranks", of)])
        for of in compute_all_shares(case)
    ]


def describe_missing_bars(case: CaseState) -> str:
    """Return a sentence about the ranks that have no bar; nothing where all have one."""
    ranks = list_ranks_with_shares(case)
    if len(ranks) <= MAX_RANK_BARS:
        return ""
    return f"of the first {MAX_RANK_BARS} of {len(ranks)} ranks; a rank's own details have its bar"


def _labels(case: CaseState, ranks: list[int]) -> Iterator[str]:
    """Each rank with what tells its place from the others'."""
    telling = {
        known.name for known in list_coordinate_names(case.identity.coordinates) if known.differs
    }
    for rank in ranks:
        place = (
            shorten_coordinates(case.measured.ranks[rank].coordinates)
            if rank in case.measured.ranks
            else {}
        )
        where = {name: text for name, text in place.items() if name in telling}
        yield f"rank {rank} {describe_coordinates(where)}".rstrip()


def _own(case: CaseState, of: Shares, rank: int) -> Shares | None:
    return compute_shares(case, of.metric, rank)


def _bars(whole: Shares, rows: list[Row]) -> StackedBars:
    bars = StackedBars()
    known = [Bar(label, [*of.parts.values()]) for label, of in rows if of is not None]
    bars.update([*whole.parts], known, whole.remainder)
    return bars
