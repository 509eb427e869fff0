"""The actions of the Run page that are possible, and those with an effect now."""

from __future__ import annotations

from spbench.tui.context import ConsoleContext
from spbench.tui.feed import Feed, ReplaySource
from spbench.tui.run.bindings import FAILURE_ACTIONS, REPLAY_ACTIONS, RUN_ACTIONS
from spbench.tui.run.selection import RunSelection
from spbench_core.events.statuses import CaseStatus


def is_possible(
    action: str,
    parameters: tuple[object, ...],
    selection: RunSelection | None,
    context: ConsoleContext,
    *,
    can_rerun: bool,
) -> bool:
    """Return whether an action is possible, so that its key is bound.

    Args:
        action: The name of the action.
        parameters: Its arguments.
        selection: The shown run; None without one.
        context: The context, which may start a run.
        can_rerun: Whether the suite of the shown run exists.
    """
    if action == "watch":
        return context.can_watch
    if action == "cancel":
        return can_cancel(context)
    if selection is None:
        return action not in RUN_ACTIONS
    if action == "play":
        return selection.replay is not None and parameters == (not selection.replay.playing,)
    if action in REPLAY_ACTIONS:
        return selection.replay is not None
    if action in FAILURE_ACTIONS:
        return _has_failed(selection.feed) != (action == "rest")
    return action != "again" or can_rerun or context.start_failure is not None


def can_cancel(context: ConsoleContext) -> bool:
    """Return whether a start can be removed, or the watched run is on this machine.

    The page shows a started run only in its next tick.
    """
    if context.starting_since is not None or context.start_queue.waiting:
        return True
    feed = context.feed
    return feed is not None and context.is_run_active() and feed.remote_host is None


def can_rerun_failed(feed: Feed) -> bool:
    """Return whether failed cases of a run, if any, can be run again.

    A replay starts nothing: the demo has no run on this machine.
    """
    run = feed.state.run
    has_ended = feed.ended or (run is not None and run.status is not None)
    return has_ended and not isinstance(feed.source, ReplaySource)


def _has_failed(feed: Feed) -> bool:
    """Return whether a case failed, or no case was cancelled."""
    statuses = {case.status for case in feed.state.cases.values()}
    return CaseStatus.CANCELLED not in statuses or any(status.is_bad for status in statuses)


def has_effect(action: str, selection: RunSelection | None, context: ConsoleContext) -> bool:
    """Return whether an action has an effect in the present status of the run."""
    if action == "cancel" and (context.starting_since is not None or context.start_queue.waiting):
        return True
    if action == "watch":
        return context.can_watch
    if action == "again" and context.start_failure is not None:
        return True
    if selection is None:
        return False
    feed = selection.feed
    run = feed.state.run
    has_ended = feed.ended or (run is not None and run.status is not None)
    if action.partition("(")[0] in REPLAY_ACTIONS:
        return not feed.ended
    if action == "cancel":
        return not has_ended
    if action == "again":
        return has_ended
    if action == "compare":
        return has_ended and not isinstance(feed.source, ReplaySource)
    if action == "follow":
        return not has_ended and not selection.follows_running
    if action == "next_problem":
        return selection.has_problem()
    if action in FAILURE_ACTIONS:
        has_rest = any(case.status.is_worth_another_run for case in feed.state.cases.values())
        is_offered = has_rest and _has_failed(feed) != (action == "rest")
        return is_offered and can_rerun_failed(feed)
    return True


def has_use(action: str, context: ConsoleContext) -> bool:
    """Return whether the palette of another page offers an action of the Run page.

    Actions on a run need a watched run, cancelling a live one, and play and speed a replay.
    """
    if action == "cancel":
        return can_cancel(context)
    if context.feed is None:
        return has_effect(action, None, context)
    return action.partition("(")[0] not in REPLAY_ACTIONS or not context.is_run_active()
