"""The listener of a job, which records events first and then reacts to them."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spbench.engine.connections.rank_connection import RankPeer
from spbench.engine.faults.fault import Fault, RankError, RankLoss
from spbench.engine.judging import judge_ready_cases
from spbench.engine.recorder import Recorder
from spbench.engine.watchdog import Watchdog
from spbench.errors import SpbenchError, describe_defect
from spbench.launch.jobs import Job
from spbench.record.runs.event_log import encode
from spbench.record.runs.files import may_have_controls, replace_controls_in_json
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import CASE_EVENTS, EVENTS_BEFORE_READY, SCHEMA
from spbench_core.events.statuses import CaseStatus, LogLevel

_ONE_VERSION = "install the same version of spbench here and on every host"


class JobListener:
    """The listener to the collector for one job. It reports to the job's watchdog.

    Attributes:
        wake: Set when the job has to decide something: a fault, or a rank that is done.
        ranks: The ranks' connections, once they are ready.
        positions: The position in the program that each rank reported on request.
        failure: An exception of spbench, which is raised when the job is ended.
        num_rejected: The number of rejected connections without the token.
        closed: Whether the fault has been judged, so that connections which end now were ended by
            spbench.
    """

    def __init__(
        self,
        job: Job,
        recorder: Recorder,
        watchdog: Watchdog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._recorder = recorder
        self._watchdog = watchdog
        self._clock = clock
        self._has_sent_cases = False
        self._case_repeats = {(case.id, repeat) for case, repeat in job.case_repeats}
        self._cases = {case.id for case in job.cases}
        self.wake = asyncio.Event()
        self.ranks: dict[int, RankPeer] = {}
        self.positions: dict[int, str] = {}
        self.failure: Exception | None = None
        self.num_rejected = 0
        self.closed = False

    def on_events(self, source: RankPeer, lines: list[bytes], events: list[Event]) -> None:
        """Record a batch of events, then react to them."""
        if may_have_controls(b"".join(lines)):
            events = [replace_controls_in_json(event) for event in events]
        num_valid, violation = self._find_first_violation(source, events)
        try:
            # the log is the source of record: write before any reaction
            self._record(lines[:num_valid], events[:num_valid])
            now = self._clock()
            for event in events[:num_valid]:
                self._react(source, event, now)
        except SpbenchError as error:
            # In a callback of the event loop it would be lost. The job raises it after its end.
            self.failure = self.failure or error
            self._watchdog.fail(str(error))
        except Exception as error:
            trace = traceback.format_exc()
            self._watchdog.fail(describe_defect(error), source.rank, traceback=trace)
        if violation is not None:
            self.on_violation(source, violation)
        if self._watchdog.fault is not None:
            self.wake.set()

    def _record(self, lines: list[bytes], events: list[Event]) -> None:
        """Record events, with ranks numbered like in their cases."""
        if self._job.first_rank:
            events = [event | {"rank": self._number_rank(event["rank"])} for event in events]
            lines = [encode(event)[:-1] for event in events]
        self._recorder.record_batch(self._job.number, lines, events)

    def _number_rank(self, rank: int | None) -> int | None:
        """Return the number of a rank among the ranks of its cases; None if it is unknown."""
        return None if rank is None else rank + self._job.first_rank

    def _find_first_violation(
        self, source: RankPeer, events: list[Event]
    ) -> tuple[int, str | None]:
        """Return the number of valid events, and why the next one is invalid."""
        rank = source.rank
        for index, event in enumerate(events):
            violation = self._find_violation(event, rank)
            if violation is not None:
                return index, violation
            if event["event"] == "ready":
                rank = event["rank"]
        return len(events), None

    def _find_violation(self, event: Event, rank: int | None) -> str | None:
        """Return why a rank may not send an event; ``rank`` is None until it is ready."""
        kind = event["event"]
        claimed_rank = event["rank"]
        if "job" in event:
            return "sent a field 'job', which only the console adds"
        if kind == "hello" and (schema := event.get("schema", SCHEMA)) != SCHEMA:
            return f"speaks {str(schema)[:40]!r}, this console {SCHEMA!r}: {_ONE_VERSION}"
        if kind == "ready":
            if not 0 <= claimed_rank < event["size"]:
                return f"says it is rank {claimed_rank} of {event['size']}"
            return "was ready twice" if rank is not None else None
        if claimed_rank is not None and claimed_rank < 0:
            return f"says it is rank {claimed_rank}"
        if rank is None:
            return None if kind in EVENTS_BEFORE_READY else f"sent {kind} before it was ready"
        if claimed_rank != rank:
            return f"spoke as rank {claimed_rank}"
        if kind not in CASE_EVENTS:
            return None
        case_id = event["case"]
        if case_id not in self._cases:
            return f"spoke of a case {case_id[:80]!r} that it does not run"
        repeat = event.get("repeat")
        if repeat is None or (case_id, repeat) in self._case_repeats:
            return None
        return f"spoke of repeat {repeat} of {case_id}"

    def _react(self, source: RankPeer, event: Event, now: float) -> None:
        kind = event["event"]
        if source.rank is not None:
            self._watchdog.on_sign_of_life(source.rank, now)
        if kind == "hello":
            self._watchdog.on_hello(event["rank"], event["host"])
        elif kind == "ready":
            self._on_ready(source, event, now)
        elif kind == "case_start":
            self._watchdog.on_case_start(event, now)
            self._begin(event["case"])
        elif kind == "progress":
            self._watchdog.on_progress(event, now)
        elif kind == "case_end":
            self._watchdog.on_case_end(event, now)
            judge_ready_cases(self._recorder, event["case"])
        elif kind == "log" and event["level"] == LogLevel.LOADING:
            self._watchdog.on_loading(event["rank"])
        elif kind == "log" and event["level"] == LogLevel.WHERE:
            self.positions[event["rank"]] = event["message"]
        elif kind == "log" and event["level"] in (LogLevel.PRINTED, LogLevel.BROKEN_OFF):
            self._on_program(event, now)
        elif kind == "log" and event["level"] == LogLevel.ERROR:
            self._on_error(event, now)
        elif kind == "log" and event["level"] == LogLevel.ORPHANED:
            self._on_orphan(event, now)
        elif kind == "bye":
            source.ended = True
            self._watchdog.on_bye(event["rank"], now)
            self._release(source)
            self.wake.set()

    def _begin(self, case: str) -> None:
        """Record by this machine's clock that a case has begun."""
        if not self._recorder.state.cases[case].execution.has_begun:
            self._recorder.record("case_begin", case=case)

    def _on_ready(self, source: RankPeer, event: Event, now: float) -> None:
        self._watchdog.on_ready(
            event, source.identity.host, source.identity.pid, now, launched_as=source.identity.rank
        )
        source.rank = event["rank"]
        self.ranks[event["rank"]] = source
        if self._watchdog.ready and not self._has_sent_cases and 0 in self.ranks:
            self._has_sent_cases = True
            if self._job.starts_program:
                self._send_program()
            else:
                self.ranks[0].reply(reply="cases", cases=build_payload(self._job))

    def _release(self, source: RankPeer) -> None:
        """Let a rank exit that is done; ranks of a program only when all are done.

        A process that exits after MPI broke off is the end of the job for launchers.
        """
        if not self._job.starts_program:
            source.reply(reply="bye")
        elif self._watchdog.done:
            for rank in self.ranks.values():
                rank.reply(reply="bye")

    def _send_program(self) -> None:
        """Send each rank the case, because without MPI they cannot pass on cases or hosts."""
        hosts = [self.ranks[rank].identity.host for rank in range(self._job.np)]
        cases = [case | {"hosts": hosts} for case in build_payload(self._job)]
        for source in self.ranks.values():
            source.reply(reply="cases", cases=cases)

    def _on_program(self, event: Event, now: float) -> None:
        """Report the state of a rank's program to the other ranks, which may depend on it."""
        if event["level"] == LogLevel.BROKEN_OFF:
            description = self._watchdog.describe_rank(event["rank"], now)
            self._watchdog.on_abnormal_end(RankError(event["rank"], description, event["message"]))
        for rank, source in self.ranks.items():
            if rank != event["rank"] and not source.ended:
                source.reply(reply=event["level"], rank=event["rank"], message=event["message"])

    def _on_error(self, event: Event, now: float) -> None:
        message = event["message"]
        lacks_module = message.startswith(("ModuleNotFoundError", "ImportError"))
        hint = (
            "; pip install 'spbench[workers,mpi]' into the ranks' interpreter"
            if lacks_module
            else ""
        )
        self._watchdog.on_error(
            RankError(
                event["rank"],
                self._watchdog.describe_rank(event["rank"], now),
                message,
                hint,
                missing=lacks_module,
                traceback=event.get("traceback"),
            )
        )

    def _on_orphan(self, event: Event, now: float) -> None:
        """Note a rank that lost its launcher's helper, which the launcher may not notice."""
        description = self._watchdog.describe_rank(event["rank"], now)
        self._watchdog.on_error(
            RankError(event["rank"], description, event["message"], orphaned=True)
        )

    def on_violation(self, source: RankPeer, reason: str) -> None:
        """Note that a rank has sent something invalid."""
        number = self._number_rank(source.rank)
        name = "?" if number is None else number
        message = f"rank {name} on {source.identity.host} {reason}"
        self._watchdog.on_protocol_fault(Fault(CaseStatus.ERROR, message, source.rank))
        self.wake.set()

    def on_lost(self, source: RankPeer) -> None:
        """Note that a connection has ended. Without a bye, its rank is dead or cut off."""
        if source.ended or self.closed:
            return
        now = self._clock()
        number = source.rank if source.rank is not None else source.identity.rank
        description = f"a rank on {source.identity.host}"
        if number is not None:
            description = self._watchdog.describe_rank(number, now)
        self._watchdog.on_lost(number, description)
        self.wake.set()

    def record_lost(self, fault: Fault) -> None:
        """Record that the rank of a fault is lost, if its connection has ended."""
        for observation in self._watchdog.observations:
            if isinstance(observation, RankLoss) and observation.rank == fault.rank:
                self._record_rank_lost(observation.rank, fault.message)
                return

    def _record_rank_lost(self, rank: int | None, reason: str) -> None:
        with suppress(SpbenchError):
            self._recorder.record(
                "rank_lost",
                job=self._job.number,
                rank=self._number_rank(rank),
                host=self._watchdog.connected_hosts.get(rank, ""),
                reason=reason,
            )

    def on_relay_lost(self, host: str, num_ranks: int, reason: str) -> None:
        """Note the end of a relay, which cuts off ranks that are not at fault."""
        subject = "the rank" if num_ranks == 1 else f"the {num_ranks} ranks"
        self._watchdog.fail(f"the relay of {host} {reason}: {subject} behind it cannot be heard")
        self.wake.set()

    def on_rejected(self, peer: str, reason: str) -> None:
        """Count a dropped connection without the token; the run continues."""
        self.num_rejected += 1


def build_payload(job: Job) -> list[dict[str, Any]]:
    """Return the cases as the ranks receive them: one entry per repeat."""
    return [
        {
            "id": case.id,
            "benchmark": case.benchmark,
            "params": dict(case.params),
            "repeat": repeat,
            "inject": case.inject,
        }
        for case, repeat in job.case_repeats
    ]
