"""Tests of the headline of a run."""

import pytest
from benchmarks.synthetic_run import PER_HOST, build_start

from spbench.record.run_parts import CaseCounts
from spbench.record.state import RunState
from spbench.tui.run.findings import FindingKind, RunFinding
from spbench.tui.run.panes.headline import (
    BAR_WIDTH,
    HostCount,
    _build_bar,
    _wrap_findings,
    list_for_headline,
)
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import CaseStatus


def test_hosts_are_counted_again_when_ranks_have_started():
    state = RunState()
    count = HostCount()
    counts = []
    for event in build_start(3 * PER_HOST, 0.0):
        state.apply(event)
        if event["event"] == "ready":
            counts.append(count.update(state))
    assert counts == [1 + rank // PER_HOST for rank in range(3 * PER_HOST)]


def test_hosts_are_not_counted_again_without_a_change():
    state = RunState()
    for event in build_start(2 * PER_HOST, 0.0):
        state.apply(event)
    count = HostCount()
    assert count.update(state) == 2
    for rank in state.ranks.values():
        rank.facts = RankFacts("the same host")
    assert count.update(state) == 2


@pytest.mark.parametrize(
    ("total", "ended", "bad", "found_repeats", "cells"),
    [
        (1, 1, 1, 0, (0, 16, 0, 0)),
        (1, 1, 0, 1, (0, 0, 16, 0)),
        (4, 2, 0, 0, (8, 0, 0, 8)),
        (9, 9, 2, 0, (12, 4, 0, 0)),
        (9, 9, 2, 2, (8, 4, 4, 0)),
        (100, 100, 1, 0, (15, 1, 0, 0)),
        (100, 100, 99, 1, (0, 16, 0, 0)),
        (4, 0, 0, 0, (0, 0, 0, 16)),
        (0, 0, 0, 0, (0, 0, 0, 16)),
    ],
)
def test_bar_has_shares_of_good_and_bad_repeats(total, ended, bad, found_repeats, cells):
    counts = CaseCounts(
        total=1,
        ran=0,
        passed=0,
        cancelled=0,
        idle=0,
        repeats=total,
        ended_repeats=ended,
        bad_repeats=bad,
        found_repeats=found_repeats,
    )
    bar = _build_bar(counts)
    texts, colours = zip(*bar, strict=True)
    assert tuple(map(len, texts)) == cells
    assert sum(cells) == BAR_WIDTH
    assert "".join(texts) == "█" * cells[0] + "▒" * (cells[1] + cells[2]) + "░" * cells[3]
    assert len(set(colours)) == 4


@pytest.mark.parametrize("width", [80, 120])
def test_long_finding_is_wrapped_and_not_cut(width):
    message = "ranks on vm waited up to 90 % of their time for a core in 19 of 20 cases because"
    finding = RunFinding(FindingKind.NOISY, "", f"{message} other work used it; repeat the run")
    lines = [line.plain for line in _wrap_findings([finding], width)]
    assert " ".join(lines) == finding.line
    assert all(len(line) <= width for line in lines)


def test_noise_comes_before_a_slow_rank_that_it_may_explain():
    slow = RunFinding(FindingKind.SLOW, "", "rank 0 is slow")
    noise = RunFinding(FindingKind.NOISY, "", "the ranks waited up to 72 %")
    failed = RunFinding(CaseStatus.FAILED, "a", "check sum failed")
    summary = RunFinding(FindingKind.SUMMARY, "", "1 case: 1 failed")
    assert list_for_headline([summary, slow, noise]) == [noise, slow]
    assert list_for_headline([failed, slow, noise]) == [failed, slow, noise]
    [line] = _wrap_findings([noise, slow], 80)
    assert line.plain == f"{noise.line}  +1 more"
    assert _wrap_findings([noise, slow], 20)[-1].plain.endswith("  +1 more")
