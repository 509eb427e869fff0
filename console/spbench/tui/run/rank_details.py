"""The details of a rank, in a dialog over the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from spbench.record.case_parts import CaseRank, CheckResult
from spbench.record.case_state import CaseState
from spbench.record.comparison import RankComparison, name_typical_rank
from spbench.record.messages.slowness import find_culprit
from spbench.record.number_formatting import (
    fold_numbers,
    format_exact,
    format_factor,
    format_status,
    format_time,
    format_value,
)
from spbench.record.rank_figures import RankFigures
from spbench.record.run_parts import RankState
from spbench.record.shares import compute_all_shares
from spbench.suites.case import MIRRORED
from spbench.tui.cells import name_readings
from spbench.tui.feed import Feed
from spbench.tui.run.details import Details, DetailsScreen, Line, read_failure_output
from spbench.tui.run.panes.charts import compute_rank_bars
from spbench.tui.run.panes.gpu_panel import describe_gpu
from spbench.tui.run.selection import RunSelection
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import CheckOutcome, RankPhase, RankStatus
from spbench_core.number_text import format_quantity


class RankDetailsScreen(DetailsScreen):
    """The details of a rank."""

    HELP = """\
time: the times of the rank in this case; p95: 95 of 100 iterations were as fast or faster.
waits: time in which the rank waited for others; without it, its own work is left.
skew: its own time over that of the typical rank with the same work; 1x is typical.
waits for: the slow rank that this one has to wait for.
place: its coordinates in the layout of the case, such as its stage or tile.
mean step: the mean time of an iteration, then its parts and their shares, as in the bars.
check: the largest error of each check and its tolerance."""


def describe_process(facts: RankFacts) -> str:
    """Return the id of a rank's process and, if known, its number of threads."""
    if facts.threads is None:
        return f"{facts.pid}"
    return f"{facts.pid}, {format_quantity(facts.threads, 'thread')}"


def build_rank_details(selection: RunSelection, rank: int) -> RankDetailsScreen:
    """Return the details of a rank: its location, and its checks in the shown case."""
    case = selection.case
    read = partial(_read_rank_details, selection, None if case is None else case.id, rank)
    return RankDetailsScreen(f"rank {rank}", selection.feed, read)


def _read_rank_details(selection: RunSelection, case_id: str | None, rank: int) -> Details:
    """Return the present details of a rank in a case; None: the case that is shown."""
    shown_case = selection.case
    case = shown_case if case_id is None else selection.feed.state.cases[case_id]
    is_live = selection.shows_live_ranks and case is shown_case
    live = selection.feed.state.ranks.get(rank) if is_live else None
    bars = compute_rank_bars(case, rank) if case else []
    recorded = case.measured.ranks.get(rank) if case else None
    traceback = recorded.error.get("traceback") if recorded and recorded.error else None
    output = read_failure_output(selection.feed, case, traceback)
    lines = list(_list_rank_lines(selection.feed, case, rank, live))
    return Details(lines, bars, output)


def _list_rank_lines(
    feed: Feed, case: CaseState | None, rank: int, live: RankState | None
) -> Iterator[Line]:
    recorded = case.measured.known_ranks.get(rank) if case else None
    if recorded is not None and recorded.error is not None:
        message = recorded.error.get("message", "no message")
        yield "error", f"{format_status(RankStatus.ERROR)}: {message}"
    elif case is not None and _is_lost(recorded, live):
        yield "died", case.execution.reason or "the rank has ended without an error message"
    if case is not None:
        yield from _list_time_lines(case, rank)
    if recorded is not None:
        yield from _list_location_lines(recorded.facts, recorded.device)
        gpu = feed.state.gpu_loads.find(recorded.host, recorded.gpu_address)
        if gpu is not None:
            yield name_readings("GPU", ended=feed.ended), describe_gpu(gpu)
        yield from _list_coordinate_lines(recorded.coordinates)
    elif live is not None:
        yield from _list_location_lines(live.facts, live.facts.device)
    if live is not None:
        yield "process", describe_process(live.facts)
        versions = (f"{name} {text}" for name, text in live.facts.versions.items() if text)
        yield "versions", ", ".join(versions)
    if case is not None:
        for name, results in case.measured.checks.items():
            for (repeat, checked_rank), check in sorted(results.items()):
                if checked_rank == rank:
                    yield "check", f"{name}, repeat {repeat}: {_describe_check(check)}"
        if not any(metric.part_of for metric in case.identity.metrics.values()):
            yield "parts", f"none: {case.identity.benchmark} measures only whole iterations"
        for share in compute_all_shares(case, rank):
            yield share.title, format_value(share.mean, share.unit)
            for name, text in share.list_times():
                yield f"  {name}", text


def _is_lost(recorded: CaseRank | None, live: RankState | None) -> bool:
    """Whether a rank was lost in its case, or before the first case of its launch."""
    if recorded is not None:
        return recorded.status is RankStatus.LOST
    return live is not None and live.phase is RankPhase.LOST


def _list_location_lines(facts: RankFacts, device: str | None) -> Iterator[Line]:
    """Yield host, device, cores and network of a rank."""
    local_rank = "unknown" if facts.local_rank is None else facts.local_rank
    yield "host", f"{facts.host}, local rank {local_rank}"
    yield "device", device or "unknown"
    yield "cores", fold_numbers(facts.cpus) or "unknown"
    yield "NUMA nodes", fold_numbers(facts.nodes) or "unknown"
    yield "fabric", facts.fabric or "unknown"


def _list_coordinate_lines(coordinates: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the coordinates of a rank, and those in a mirrored pipeline."""
    direct = [
        f"{name} {text}" for name, text in coordinates.items() if not name.startswith(MIRRORED)
    ]
    mirrored = [
        f"{name.removeprefix(MIRRORED)} {text}"
        for name, text in coordinates.items()
        if name.startswith(MIRRORED)
    ]
    if direct:
        yield "place", ", ".join(direct)
    if mirrored:
        yield "mirrored", ", ".join(mirrored)


def _list_time_lines(case: CaseState, rank: int) -> Iterator[Line]:
    """Yield the times of a rank, its waits, and its skew among its peers."""
    comparison = RankComparison(case.identity)
    figures = RankFigures(rank, case, comparison)
    figures.take_times()
    if figures.time is None:
        return
    values = {
        "last": figures.recent()[-1] if figures.recent() else None,
        "median": figures.p50,
        "p95": figures.percentile(0.95),
        "p99": figures.percentile(0.99),
    }
    times = [f"{name} {format_time(ms)}" for name, ms in values.items() if ms is not None]
    iterations = format_quantity(len(figures.times), "iteration")
    yield "time", f"{', '.join(times)} over {iterations}"
    if figures.time.active is not None and figures.time.waits is not None:
        active = format_time(figures.time.active)
        waits = format_time(figures.time.waits)
        total = format_time(figures.time.total)
        yield "", f"median {total} = {active} of work + {waits} of waits for other ranks"
    yield from _list_comparison_lines(case, rank, comparison)


def _list_comparison_lines(
    case: CaseState, rank: int, comparison: RankComparison
) -> Iterator[Line]:
    """Yield the skew of a rank among its peers, and the slow rank that it waits for."""
    time_by_rank = case.compute_active_medians()
    ratios = comparison.compare(time_by_rank).ratios
    peers = comparison.find_comparable(time_by_rank).get(rank, (rank,))
    if rank in ratios:
        yield "skew", _describe_skew(rank, ratios[rank], tuple(peers))
    else:
        yield "skew", f"not compared: {_describe_single_work(case, rank)}"
    culprit = find_culprit(case, comparison, time_by_rank, ratios, rank)
    if culprit is not None:
        host = case.measured.ranks[culprit].host
        yield "waits for", f"rank {culprit} on {host}, which is slow"


def _describe_skew(rank: int, ratio: float, peers: tuple[int, ...]) -> str:
    """Return the ratio of a rank to the faster one of two, or to the median one."""
    ranks = f"ranks {fold_numbers(peers)} (the same work)"
    if len(peers) > 2:
        return f"{format_factor(ratio)} the median of {ranks}"
    if ratio > 1:
        return f"{format_factor(ratio)} the time of {name_typical_rank(peers, rank)}"
    return f"{format_factor(ratio)}, the faster of {ranks}"


def _describe_single_work(case: CaseState, rank: int) -> str:
    recorded = case.measured.ranks.get(rank)
    stage = recorded.coordinates.get("stage") if recorded is not None else None
    if stage is not None:
        return f"only rank of stage {stage}"
    return "no other rank does the same work"


def _describe_check(check: CheckResult) -> str:
    error = "not a number"
    if check.max_abs_error is not None:
        error = format_exact(check.max_abs_error)
    outcome = format_status(CheckOutcome.PASSED if check.passed else CheckOutcome.FAILED)
    detail = f": {check.detail}" if check.detail else ""
    tolerance = format_exact(check.tolerance)
    return f"{outcome}, largest error {error} (tolerance {tolerance}){detail}"
