"""The speed at which a recorded run is played again."""

from __future__ import annotations

from spbench.tui.feed import Feed, ReplaySource

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, None)
"""The speeds that the keys step through; None is as fast as can be."""


def describe_replay(feed: Feed) -> str:
    """Return how a run is played and where it is: ``▶ 2x at 12 s``."""
    source = feed.source
    assert isinstance(source, ReplaySource)
    speed = "max" if source.speed is None else f"{source.speed:g}x"
    run = feed.state.run
    at = f" at {max(0.0, feed.now - run.started):.1f} s" if run is not None else ""
    if feed.ended:
        return f"■ played, {source.played:,} events"
    return f"{'▶' if source.playing else '⏸'} {speed}{at}, {source.played:,} events"


def next_speed(speed: float | None, faster: bool) -> float | None:
    """Return the next speed up or down; the last one in either direction stays."""
    if faster:
        return next((s for s in SPEEDS if s is None or (speed is not None and s > speed)), None)
    known = [s for s in SPEEDS if s is not None and (speed is None or s < speed)]
    return known[-1] if known else SPEEDS[0]


def toggle_playback(feed: Feed) -> None:
    """Stop a replay, or let it go on."""
    if isinstance(feed.source, ReplaySource):
        feed.source.playing = not feed.source.playing


def change_speed(feed: Feed, faster: bool) -> None:
    """Play a replay at the next speed up or down."""
    if isinstance(feed.source, ReplaySource):
        feed.source.speed = next_speed(feed.source.speed, faster)
