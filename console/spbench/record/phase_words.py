"""The phase of a running case in words: how far it is, and how long it takes yet."""

from __future__ import annotations

from spbench.record.state import RankState, RunState


def phase_words(state: RunState, now: float) -> str:
    """Return the phase of the rank that gets on, ``check 40 %, 12 s yet``.

    Empty where no rank counts what it does.
    """
    counting = [rank for rank in state.ranks.values() if rank.total and rank.done < rank.total]
    if not counting:
        return ""
    # Ranks that wait for others tell nothing new, and those of an earlier phase least of all.
    rank = max(counting, key=lambda one: one.phase_since)
    percent = 100 * rank.done // rank.total
    return f"{rank.phase} {percent} %{_yet(rank, now)}"


def _yet(rank: RankState, now: float) -> str:
    if not rank.done or not rank.phase_since:
        return ""
    each = (now - rank.phase_since) / rank.done
    return f", {max(0.0, each * (rank.total - rank.done)):.0f} s yet"
