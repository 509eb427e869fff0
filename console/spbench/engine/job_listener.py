"""The listener of a job: events of its ranks are recorded first, then acted on."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spbench.engine.connections.rank_connection import RankPeer
from spbench.engine.faults.fault import Fault, RankError, RankLoss
from spbench.engine.recorder import Recorder
from spbench.engine.verdicts import tell_verdicts
from spbench.engine.watchdog import Watchdog
from spbench.errors import SpbenchError, describe_defect
from spbench.launch.jobs import Job
from spbench.record.runs.event_log import encode
from spbench.record.runs.files import has_commands, without_commands
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import (
    CASE_EVENTS,
    EVENTS_BEFORE_READY,
    SCHEMA,
)
from spbench_core.events.statuses import CaseStatus, LogLevel

_ONE_VERSION = "install the same version of spbench here and on every host"


class JobListener:
    """Listens to the collector for one job, and notes in its watch what goes wrong first.

    Attributes:
        wake: Set when there is something to decide: a fault, or a rank that is through.
        ranks: The ranks' connections, once they are ready.
        where: Where ranks stand, by their own word, once they were asked.
        failure: An exception of ours; raised again when the job is ended.
        strangers: How many connections without the token were dropped.
        closed: Whether the fault has been judged: connections that end now are ended by us.
    """

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        watch: Watchdog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._recorder = recorder
        self._watch = watch
        self._clock = clock
        self._answered = False
        self._items = {(case.id, repeat) for case, repeat in job.items}
        self._cases = {case.id for case in job.cases}
        self.wake = asyncio.Event()
        self.ranks: dict[int, RankPeer] = {}
        self.where: dict[int, str] = {}
        self.failure: Exception | None = None
        self.strangers = 0
        self.closed = False

    def on_events(self, source: RankPeer, lines: list[bytes], events: list[Event]) -> None:
        """Record a batch, then act on what it says."""
        if has_commands(b"".join(lines)):
            events = [without_commands(event) for event in events]
        right, wrong = self._known(source, events)
        try:
            self._record(lines[:right], events[:right])
            now = self._clock()
            for event in events[:right]:
                self._act(source, event, now)
        except SpbenchError as error:
            # In a callback of the event loop it would be lost; the job raises it once all is ended.
            self.failure = self.failure or error
            self._watch.fail(str(error))
        except Exception as error:
            trace = traceback.format_exc()
            self._watch.fail(describe_defect(error), source.rank, traceback=trace)
        if wrong is not None:
            self.on_violation(source, wrong)
        if self._watch.fault is not None:
            self.wake.set()

    def _record(self, lines: list[bytes], events: list[Event]) -> None:
        """Record events; of a job that has some of its cases' ranks, by their numbers in these."""
        first = self._job.first_rank
        if first:
            numbered = ((e, e["rank"] if e["rank"] is None else e["rank"] + first) for e in events)
            events = [event | {"rank": rank} for event, rank in numbered]
            lines = [encode(event)[:-1] for event in events]
        self._recorder.take(self._job.number, lines, events)

    def _known(self, source: RankPeer, events: list[Event]) -> tuple[int, str | None]:
        """Return how many of the events are ones that this rank may send, and what is wrong."""
        rank = source.rank
        for right, event in enumerate(events):
            wrong = self._wrong(event, rank)
            if wrong is not None:
                return right, wrong
            if event["event"] == "ready":
                rank = event["rank"]
        return len(events), None

    def _wrong(self, event: Event, rank: int | None) -> str | None:
        """Return what is wrong with an event of a rank; ``rank`` is None until it is ready."""
        kind = event["event"]
        number = event["rank"]
        if "job" in event:
            return "sent a field 'job', which only the console adds"
        if kind == "hello" and (spoken := event.get("schema", SCHEMA)) != SCHEMA:
            return f"speaks {str(spoken)[:40]!r}, this console {SCHEMA!r}: {_ONE_VERSION}"
        if kind == "ready":
            known = 0 <= number < event["size"]
            twice = "was ready twice" if rank is not None else None
            return twice if known else f"says it is rank {number} of {event['size']}"
        if number is not None and number < 0:
            return f"says it is rank {number}"
        if rank is None:
            return None if kind in EVENTS_BEFORE_READY else f"sent {kind} before it was ready"
        if number != rank:
            return f"spoke as rank {number}"
        if kind not in CASE_EVENTS:
            return None
        case = event["case"]
        if case not in self._cases:
            return f"spoke of a case {case[:80]!r} that it does not run"
        repeat = event.get("repeat")
        if repeat is None or (case, repeat) in self._items:
            return None
        return f"spoke of repeat {repeat} of {case}"

    def _act(self, source: RankPeer, event: Event, now: float) -> None:
        kind = event["event"]
        if source.rank is not None:
            self._watch.heard(source.rank, now)
        if kind == "hello":
            self._watch.on_hello(event["rank"], event["host"])
        elif kind == "ready":
            self._on_ready(source, event, now)
        elif kind == "case_start":
            self._watch.on_case_start(event, now)
            self._begin(event["case"])
        elif kind == "progress":
            self._watch.on_progress(event, now)
        elif kind == "case_end":
            self._watch.on_case_end(event, now)
            tell_verdicts(self._recorder, event["case"])
        elif kind == "log" and event["level"] == LogLevel.LOADING:
            self._watch.on_loading(event["rank"])
        elif kind == "log" and event["level"] == LogLevel.WHERE:
            self.where[event["rank"]] = event["message"]
        elif kind == "log" and event["level"] in (LogLevel.PRINTED, LogLevel.BROKEN_OFF):
            self._on_program(event, now)
        elif kind == "log" and event["level"] == LogLevel.ERROR:
            self._on_error(event, now)
        elif kind == "log" and event["level"] == LogLevel.ORPHANED:
            self._on_orphan(event, now)
        elif kind == "bye":
            source.ended = True
            self._watch.on_bye(event["rank"], now)
            self._let_go(source)
            self.wake.set()

    def _begin(self, case: str) -> None:
        """Record that a case has begun; a rank's clock may differ from that of this machine."""
        if not self._recorder.state.cases[case].verdict.begun:
            self._recorder.say("case_begin", case=case)

    def _on_ready(self, source: RankPeer, event: Event, now: float) -> None:
        self._watch.on_ready(
            event, source.who.host, source.who.pid, now, launched_as=source.who.rank
        )
        source.rank = event["rank"]
        self.ranks[event["rank"]] = source
        if self._watch.ready and not self._answered and 0 in self.ranks:
            self._answered = True
            if self._job.starts_program:
                self._hand_out_program()
            else:
                self.ranks[0].reply(reply="cases", cases=payload(self._job))

    def _let_go(self, source: RankPeer) -> None:
        """Let a rank end that is through; one with a program only when all are.

        Launchers take the end of a process whose MPI broke off for the end of the job.
        """
        if not self._job.starts_program:
            source.reply(reply="bye")
        elif self._watch.done:
            for each in self.ranks.values():
                each.reply(reply="bye")

    def _hand_out_program(self) -> None:
        """Give each rank the case: without MPI none can pass it on, nor tell its host to others."""
        hosts = [self.ranks[rank].who.host for rank in range(self._job.np)]
        cases = [case | {"hosts": hosts} for case in payload(self._job)]
        for source in self.ranks.values():
            source.reply(reply="cases", cases=cases)

    def _on_program(self, event: Event, now: float) -> None:
        """Tell the other ranks what a rank's program has done, on which theirs may depend."""
        if event["level"] == LogLevel.BROKEN_OFF:
            who = self._watch.name(event["rank"], now)
            self._watch.on_broken_off(RankError(event["rank"], who, event["message"]))
        for rank, source in self.ranks.items():
            if rank != event["rank"] and not source.ended:
                source.reply(reply=event["level"], rank=event["rank"], message=event["message"])

    def _on_error(self, event: Event, now: float) -> None:
        message = event["message"]
        lacking = message.startswith(("ModuleNotFoundError", "ImportError"))
        hint = "; pip install 'spbench[workers,mpi]' into the ranks' interpreter" if lacking else ""
        self._watch.on_error(
            RankError(
                event["rank"],
                self._watch.name(event["rank"], now),
                message,
                hint,
                missing=lacking,
                traceback=event.get("traceback"),
            )
        )

    def _on_orphan(self, event: Event, now: float) -> None:
        """Note a rank that lost its launcher's helper: the launcher may not notice it."""
        who = self._watch.name(event["rank"], now)
        self._watch.on_error(RankError(event["rank"], who, event["message"], orphaned=True))

    def on_violation(self, source: RankPeer, why: str) -> None:
        """A rank said what no rank says."""
        rank = source.rank if source.rank is not None else "?"
        why = f"rank {rank} on {source.who.host} {why}"
        self._watch.on_misfit(Fault(CaseStatus.ERROR, why, source.rank))
        self.wake.set()

    def on_lost(self, source: RankPeer) -> None:
        """A rank's connection has ended: well after its bye, else it is dead or cut off."""
        if source.ended or self.closed:
            return
        now = self._clock()
        number = source.rank if source.rank is not None else source.who.rank
        who = (
            self._watch.name(number, now) if number is not None else f"a rank on {source.who.host}"
        )
        self._watch.on_lost(number, who)
        self.wake.set()

    def lost(self, fault: Fault) -> None:
        """Record the rank that the fault names as lost, if its connection has ended."""
        for piece in self._watch.seen:
            if isinstance(piece, RankLoss) and piece.rank == fault.rank:
                self._say_lost(piece.rank, fault.sentence)
                return

    def _say_lost(self, rank: int | None, sentence: str) -> None:
        with suppress(SpbenchError):
            self._recorder.say(
                "rank_lost",
                job=self._job.number,
                rank=rank if rank is None else rank + self._job.first_rank,
                host=self._watch.greeted.get(rank, ""),
                reason=sentence,
            )

    def on_relay_lost(self, host: str, ranks: int, why: str) -> None:
        """A relay is gone; the ranks it carried end with it, and are not to blame."""
        cut_off = "the rank" if ranks == 1 else f"the {ranks} ranks"
        self._watch.fail(f"the relay of {host} {why}: {cut_off} behind it cannot be heard")
        self.wake.set()

    def on_stranger(self, peer: str, why: str) -> None:
        """Someone without the token was dropped; the run goes on."""
        self.strangers += 1


def payload(job: Job) -> list[dict[str, Any]]:
    """Return the cases as the ranks get them: one entry a repeat."""
    return [
        {
            "id": case.id,
            "benchmark": case.benchmark,
            "params": dict(case.params),
            "repeat": repeat,
            "inject": case.inject,
        }
        for case, repeat in job.items
    ]
