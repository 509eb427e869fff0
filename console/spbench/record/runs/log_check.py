"""The check of a recorded log, event by event: what is in it may be torn, or anyone's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench.suites.case import MAX_REPEATS
from spbench_core.events import rank_events, run_events
from spbench_core.events.fields import EventError


class LogCheck:
    """The events of a log so far, against which each further one of it is held.

    An event that it lets pass can be applied to a state: its parts are of their types, and the
    cases and jobs that it speaks of are known.
    """

    def __init__(self) -> None:
        self._repeats: dict[str, int] = {}
        self._jobs: set[int] = set()
        self._begun = False

    def accepts(self, event: Any) -> bool:
        """Whether that is the next event of a run; one of a kind that is not known is ignored."""
        if type(event) is not dict or type(event.get("event")) is not str:
            return False
        if type(event.get("time")) not in (int, float):
            return False
        if type(event.get("rank")) not in (int, type(None)):  # of kinds that are not known, too
            return False
        kind = event["event"]
        try:
            if kind in rank_events.EVENT_KINDS:
                return self._passes_rank_event(event)
            return kind not in run_events.FIELDS or self._passes_run_event(event)
        except EventError:
            return False

    def _passes_rank_event(self, event: dict[str, Any]) -> bool:
        rank_events.check_rank_event(event)
        rank = event["rank"]
        job = event.get("job")
        if type(job) is not int or job not in self._jobs or (rank is not None and rank < 0):
            return False
        if event["event"] not in rank_events.CASE_EVENTS:
            return True
        repeat: int = event.get("repeat", 0)
        return 0 <= repeat < self._repeats.get(event["case"], 0)

    def _passes_run_event(self, event: dict[str, Any]) -> bool:
        run_events.check_run_event(event)
        kind = event["event"]
        if kind == "run_start":
            return self._begins(event)
        if kind in ("job_start", "run_resumed", "retry"):
            known = self._repeats.keys() >= set(event["cases"])
            if known and kind == "job_start":
                self._jobs.add(event["job"])
            return known
        if kind in ("case_begin", "case_judged", "repeats_end"):
            return event["case"] in self._repeats
        return kind == "run_end" or event["job"] in self._jobs

    def _begins(self, event: dict[str, Any]) -> bool:
        first, self._begun = not self._begun, True
        if first:
            self._repeats = {case["id"]: _most_repeats(case) for case in event["cases"]}
        return first


def _most_repeats(case: Mapping[str, Any]) -> int:
    repeat: int = case["repeat"]
    return max(repeat, MAX_REPEATS) if "until" in case else repeat
