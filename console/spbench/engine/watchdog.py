"""The deadlines of a job: pure bookkeeping of events, without timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from spbench.engine.faults.fault import Fault, Observation, RankError, RankLoss
from spbench_core.catalog.planted_fault import EndingFault
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import ASLEEP, SILENCE_LIMIT
from spbench_core.events.statuses import CaseStatus, PhaseProgress, RankStatus, restarts_deadline
from spbench_core.number_text import format_quantity

EXIT_TIMEOUT = 20.0
"""Seconds from the last case's end until every rank has sent its bye."""

MIN_SILENCE = 3.0
"""Seconds without a heartbeat that are not chance, because it is sent once per second."""

NO_ANSWER = "not answering"
_HANG_POSITION = "in _hang ("
"""The start of the position of a rank with the planted fault ``hang``."""

CaseRepeat = tuple[str, int]
"""A case's id and one of its repeats, which ranks start and end together."""


def _ignore_load(host: str) -> str:
    return ""


class _StartTimes(NamedTuple):
    """The times at which the first and the last rank started a repeat."""

    first: float
    last: float


class _DeadlineRestart(NamedTuple):
    """The time at which progress restarted a repeat's deadline, and the rank's phase."""

    time: float
    phase: str


@dataclass(slots=True)
class _Rank:
    host: str
    pid: int
    since: float
    """The time at which it was ready, or started its repeat."""
    last_heard: float
    case: str | None = None
    loading: bool = False
    ended: bool = False
    progress: PhaseProgress | None = None


class Watchdog:
    """The deadlines of one job: signs of life of ranks, and ends of steps.

    Only its methods change its state; those named ``on_...`` take events. Times are seconds of one
    monotonic clock.

    Args:
        np: The number of ranks.
        case_repeats: All repeats of cases that the ranks run, in this order.
        start_timeout: Seconds until all ranks must be ready, and until they must start a repeat.
        case_timeouts: Seconds that each case may take, by its id.
        launched: The time of the launch, until `on_launch` sets it.
        names: Launcher and MPI library, for messages.
        silence_timeout: Seconds without a sign of life after which a rank counts as hung.
        describe_load: Returns the load of a host if it is high and known, otherwise an empty text.
        hosts: The hosts of ranks, as far as they are known before the ranks report them.
        first_rank: The number of rank 0 in messages: its number among the ranks of its cases.
    """

    def __init__(
        self,
        np: int,
        case_repeats: Sequence[CaseRepeat],
        start_timeout: float,
        case_timeouts: Mapping[str, float],
        launched: float,
        *,
        names: str = "the launcher and the MPI library",
        silence_timeout: float = SILENCE_LIMIT,
        describe_load: Callable[[str], str] = _ignore_load,
        hosts: Mapping[int, str] = MappingProxyType({}),
        first_rank: int = 0,
    ) -> None:
        self.np = np
        self.case_repeats = case_repeats
        self._start_timeout = start_timeout
        self._case_timeouts = case_timeouts
        self._launched = self._waiting_since = launched
        self._names = names
        self._library: str | None = None
        self._silence_timeout = silence_timeout
        self._describe_load = describe_load
        self._expected_hosts = hosts
        self._first_rank = first_rank
        self._ranks: dict[int, _Rank] = {}
        self._connected_hosts: dict[int | None, str] = {}
        self._fault: Fault | None = None
        self._tentative = False
        self._protocol_fault: Fault | None = None
        self._observations: list[Observation] = []
        self._first_start: float | None = None
        self._starts: dict[CaseRepeat, _StartTimes] = {}
        self._restarts: dict[CaseRepeat, _DeadlineRestart] = {}
        self._ended: dict[CaseRepeat, set[int]] = {}

    @property
    def launched(self) -> float:
        """The time of the launch."""
        return self._launched

    @property
    def fault(self) -> Fault | None:
        """The fault that came first, or its cause once it is known."""
        return self._fault

    @property
    def tentative(self) -> bool:
        """Whether the fault may be a consequence of another."""
        return self._tentative

    @property
    def protocol_fault(self) -> Fault | None:
        """The fault of a rank in a wrong world, or that sent something invalid."""
        return self._protocol_fault

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The observations of ranks' ends, in order."""
        return tuple(self._observations)

    @property
    def connected_hosts(self) -> Mapping[int | None, str]:
        """The hosts of connected ranks, by the numbers that their launcher gave them.

        The key of ranks without such a number is None.
        """
        return self._connected_hosts

    @property
    def expected_hosts(self) -> Mapping[int, str]:
        """The hosts of ranks, as far as they were known before the launch."""
        return self._expected_hosts

    @property
    def ready(self) -> bool:
        """Whether every rank is ready."""
        return len(self._ranks) == self.np

    @property
    def current(self) -> CaseRepeat | None:
        """The first repeat of a case that not all ranks have ended; None if all have."""
        for case_repeat in self.case_repeats:
            if len(self._ended.get(case_repeat, ())) < self.np:
                return case_repeat
        return None

    @property
    def done(self) -> bool:
        """Whether every rank has ended every repeat and sent its bye."""
        return self.ready and all(rank.ended for rank in self._ranks.values())

    @property
    def hosts(self) -> dict[int, str]:
        """The known hosts of ranks."""
        hosts = {rank: self._find_host(rank) for rank in range(self.np)}
        return {rank: host for rank, host in hosts.items() if host}

    @property
    def unconnected(self) -> frozenset[int] | None:
        """The ranks that have not connected; None if a connected rank has no number."""
        if None in self._connected_hosts:
            return None
        return frozenset(range(self.np)) - self._connected_hosts.keys()

    def on_launch(self, names: str, library: str, now: float) -> None:
        """Note that the job is launched.

        Args:
            names: Launcher and MPI library, for messages.
            library: The MPI library that ranks should load, with the text that they report.
            now: The time of the launch.
        """
        self._names = names
        self._library = library
        self._launched = self._waiting_since = now

    def on_hello(self, rank: int | None, host: str) -> None:
        """Note that a rank has connected; None if its launcher gave it no number."""
        self._connected_hosts[rank] = host

    def on_sign_of_life(self, rank: int, now: float) -> None:
        """Note that something was heard of a rank."""
        if rank in self._ranks:
            self._ranks[rank].last_heard = now

    def on_ready(
        self,
        event: Event,
        host: str,
        pid: int,
        now: float,
        launched_as: int | None = None,
    ) -> None:
        """Note that a rank is ready. Its world must be as large as the job.

        ``launched_as`` is its number in the launcher's environment.
        """
        number = event["rank"]
        if event["size"] != self.np or number in self._ranks:
            self._note_mismatch(event, host, launched_as)
            return
        self._ranks[number] = _Rank(host, pid, now, now)
        self._waiting_since = now

    def _note_mismatch(self, event: Event, host: str, launched_as: int | None) -> None:
        subject = host
        if launched_as is not None:
            subject = f"rank {launched_as + self._first_rank} on {host}"
        claim = f"rank {event['rank']} of {event['size']}"
        reason = f"{self._names} do not match"
        loaded = event["versions"].get("mpi")
        if loaded and self._library and loaded != self._library:
            reason = (
                f"it loads {loaded}, and the others are to load {self._library}: let {host} find "
                f"the same, by launch.setup, launch.env or launch.python"
            )
        world = f"a job of {format_quantity(self.np, 'rank')}"
        message = f"{subject} says it is {claim} in {world}: {reason}"
        rank = event["rank"] if launched_as is None else launched_as
        self.on_protocol_fault(Fault(CaseStatus.ERROR, message, rank, missing=True))

    def on_protocol_fault(self, fault: Fault) -> None:
        """Note that a rank is in a wrong world or has sent something invalid."""
        self._protocol_fault = self._protocol_fault or fault
        if self._fault is None:
            self._fault = fault
            self._tentative = True

    def on_loading(self, rank: int) -> None:
        """Note that a rank has its cases and loads their modules."""
        if rank in self._ranks:
            self._ranks[rank].loading = True

    def on_case_start(self, event: Event, now: float) -> None:
        """Note that a rank starts a repeat of a case.

        The deadline counts from the last rank to start it.
        """
        case_repeat = event["case"], event["repeat"]
        earlier = self._starts.get(case_repeat)
        self._starts[case_repeat] = _StartTimes(now if earlier is None else earlier.first, now)
        self._first_start = now if self._first_start is None else self._first_start
        self._ranks[event["rank"]].case = event["case"]
        self._ranks[event["rank"]].since = now
        self._ranks[event["rank"]].progress = None

    def on_progress(self, event: Event, now: float) -> None:
        """Note a rank's progress, which may restart the deadline."""
        rank = self._ranks[event["rank"]]
        case_repeat = (event["case"], event.get("repeat", 0))
        previous_progress = rank.progress
        rank.progress = (event["phase"], event["done"])
        if case_repeat in self._starts and restarts_deadline(previous_progress, rank.progress):
            self._restarts[case_repeat] = _DeadlineRestart(now, event["phase"])

    def on_case_end(self, event: Event, now: float) -> None:
        """Note that a rank has ended a repeat of a case, with or without an error."""
        number = event["rank"]
        if self._ranks[number].case != event["case"]:
            self.fail(
                f"{self.describe_rank(number, now)}, ended {event['case']}, "
                "which it had not started"
            )
            return
        if event["status"] == RankStatus.OK:
            self._ended.setdefault((event["case"], event["repeat"]), set()).add(event["rank"])
            self._waiting_since = now
            return
        error = event.get("error", {})
        self.on_error(
            RankError(
                event["rank"],
                self.describe_rank(event["rank"], now),
                error.get("message", "unknown error"),
                case=event["case"],
                missing=bool(error.get("missing")),
                traceback=error.get("traceback"),
            )
        )

    def on_error(self, error: RankError) -> None:
        """Note an exception of a rank."""
        self._observations.append(error)
        if self._fault is None:
            self._fault = error.to_fault()
            self._tentative = True

    def on_abnormal_end(self, error: RankError) -> None:
        """Note the abnormal end of a rank's program, the cause of later losses."""
        self._observations.append(error)

    def on_lost(self, rank: int | None, description: str) -> None:
        """Note that a connection ended before its rank had sent its bye."""
        self._observations.append(RankLoss(rank, description))
        self.fail(f"{description}, ended without an error message", rank, tentative=True)

    def on_bye(self, rank: int, now: float) -> None:
        """Note that a rank is done, with all repeats ended.

        Events of other ranks may be read later.
        """
        self._ranks[rank].ended = True
        for case_repeat in self.case_repeats:
            if rank not in self._ended.get(case_repeat, ()):
                name = self.describe_rank(rank, now)
                self.fail(f"{name}, said bye before it had ended {case_repeat[0]}", rank)
                return

    def fail(
        self,
        message: str,
        rank: int | None = None,
        *,
        missing: bool = False,
        tentative: bool = False,
        traceback: str | None = None,
    ) -> None:
        """Note the first fault; later faults are its consequences and are ignored."""
        if self._fault is None:
            self._tentative = tentative
            self._fault = Fault(
                CaseStatus.ERROR, message, rank, missing=missing, traceback=traceback
            )

    def cancel(self, message: str) -> None:
        """Note that the job should end, unless it already has a fault."""
        if self._fault is None:
            self._fault = Fault(CaseStatus.CANCELLED, message)

    def explain(self, fault: Fault) -> None:
        """Replace the fault by its cause, or by the same fault with more details."""
        self._fault = fault

    def describe_rank(self, rank: int, now: float, reported_host: str | None = None) -> str:
        """Return ``rank 3 on node02, 1.4 s into CASE``, or the time since the launch.

        ``reported_host`` is named if the host of the rank is unknown here.
        """
        rank_state = self._ranks.get(rank)
        name = self._name_ranks([rank], reported_host)
        if rank_state is None or rank_state.case is None:
            return f"{name}, {now - self._launched:.1f} s after the launch"
        return f"{name}, {now - rank_state.since:.1f} s into {rank_state.case}"

    def find_quiet(self, now: float) -> dict[int, float]:
        """Return seconds of silence of ranks that miss heartbeats while others do not."""
        silence_by_rank = {
            number: now - rank.last_heard for number, rank in self._ranks.items() if not rank.ended
        }
        if all(seconds > MIN_SILENCE for seconds in silence_by_rank.values()):
            return {}
        return {rank: seconds for rank, seconds in silence_by_rank.items() if seconds > MIN_SILENCE}

    @property
    def start_spread(self) -> float:
        """Seconds between the first and the last rank's start of the current repeat."""
        starts = self._starts.get(self.current) if self.current is not None else None
        return starts.last - starts.first if starts is not None else 0.0

    def check_deadlines(self, now: float, slack: float = 0.0) -> Fault | None:
        """Return the fault of an overdue step, or the fault that was noted before.

        A deadline that is at most ``slack`` seconds ahead counts as passed.
        """
        if self._fault is None:
            self._fault = self._find_silent(now) or self._find_late(now + slack)
        return self._fault

    def add_locations(self, fault: Fault, positions: Mapping[int, str]) -> Fault:
        """Return a timeout with the positions of its ranks, the likely culprit first.

        A rank that does not answer, that sleeps, or that is at a rare position makes the others
        wait.
        """
        ranks_by_position: dict[str, list[int]] = {}
        for rank in sorted(self._ranks):
            ranks_by_position.setdefault(positions.get(rank, NO_ANSWER), []).append(rank)
        groups = sorted(
            ranks_by_position.items(),
            key=lambda group: (group[0] != NO_ANSWER, ASLEEP not in group[0], len(group[1])),
        )
        descriptions = [
            f"{self._name_ranks(ranks)} {_choose_verb(ranks)} {position}"
            for position, ranks in groups
        ]
        more = f" and {len(descriptions) - 3} more places" if len(descriptions) > 3 else ""
        message = f"{', '.join(descriptions[:3])}{more}: {fault.message}"
        first_position, first_ranks = groups[0]
        effect = _find_effect(first_position) if len(first_ranks) == 1 else None
        return replace(fault, message=message, rank=first_ranks[0], effect=effect)

    def _find_silent(self, now: float) -> Fault | None:
        for number, rank in self._ranks.items():
            silence = now - rank.last_heard
            # Loading torch can delay a heartbeat for longer than this on a slow file system. Until
            # the first rank has loaded it, start_timeout is the limit.
            is_loading = rank.loading and rank.case is None
            if is_loading and self._first_start is not None:
                is_loading = now - self._first_start <= self._silence_timeout
            if silence > self._silence_timeout and not is_loading and not rank.ended:
                message = f"{self._name_ranks([number])} silent for {silence:.0f} s"
                if load := self._describe_load(rank.host):
                    setting = f"launch.silence_timeout ({self._silence_timeout:g} s)"
                    message += f": {load} there; end what else runs there, or raise {setting}"
                return Fault(CaseStatus.ERROR, message, number, effect=EndingFault.STOP)
        return None

    def _find_late(self, now: float) -> Fault | None:
        waited_seconds = now - self._waiting_since
        if not self.ready:
            return self._check_start(now)
        current = self.current
        if current is None:
            late_ranks = [number for number, rank in self._ranks.items() if not rank.ended]
            if waited_seconds > EXIT_TIMEOUT and late_ranks:
                return Fault(
                    CaseStatus.ERROR,
                    f"{self._name_ranks(late_ranks)} did not say bye in {waited_seconds:.0f} s",
                )
            return None
        if current in self._starts:
            timeout = self._case_timeouts[current[0]]
            deadline_start = self._starts[current].last
            phase_text = ""
            if (restart := self._restarts.get(current)) is not None:
                deadline_start = max(deadline_start, restart.time)
                phase_text = f" of {restart.phase}" if restart.phase else ""
            waited_seconds = now - deadline_start
            late_ranks = sorted(set(self._ranks) - self._ended.get(current, set()))
            if waited_seconds > timeout:
                verb = _choose_verb(late_ranks)
                message = (
                    f"{self._name_ranks(late_ranks)} {verb} not through with {current[0]} "
                    f"after {waited_seconds:.1f} s{phase_text} (its timeout is {timeout:g} s)"
                )
                return Fault(CaseStatus.TIMEOUT, message, late_ranks[0], current[0])
        elif waited_seconds > self._start_timeout:
            return Fault(
                CaseStatus.ERROR, f"no rank started {current[0]} in {waited_seconds:.0f} s"
            )
        return None

    def _check_start(self, now: float) -> Fault | None:
        waited_seconds = now - self._launched
        if waited_seconds <= self._start_timeout:
            return None
        # a rank may have ended: the launcher may have reported it and hang
        self._tentative = True
        all_ranks = format_quantity(self.np, "rank")
        message = (
            f"{len(self._ranks)} of {all_ranks} were ready {waited_seconds:.0f} s "
            f"after the launch (start_timeout is {self._start_timeout:g} s)"
        )
        return Fault(CaseStatus.ERROR, f"{message}{self._describe_late_ranks()}")

    def _describe_late_ranks(self) -> str:
        """Return the ranks that have not connected, or else those that are not ready."""
        if absent := sorted((self.unconnected or frozenset()) - self._ranks.keys()):
            return f"; {self._name_ranks(absent)} did not connect"
        connected = {rank for rank in self._connected_hosts if rank is not None}
        loading = sorted(connected - self._ranks.keys())
        if not loading:
            return ""
        return f"; {self._name_ranks(loading)} connected and {_choose_verb(loading)} not ready"

    def _find_host(self, rank: int) -> str:
        if rank in self._ranks:
            return self._ranks[rank].host
        return self._connected_hosts.get(rank, self._expected_hosts.get(rank, ""))

    def _name_ranks(self, ranks: list[int], reported_host: str | None = None) -> str:
        hosts = sorted({self._find_host(rank) or reported_host or "" for rank in ranks} - {""})
        rank_numbers = [rank + self._first_rank for rank in ranks]
        if len(rank_numbers) == 1:
            return f"rank {rank_numbers[0]} on {hosts[0]}" if hosts else f"rank {rank_numbers[0]}"
        shown_numbers = ", ".join(map(str, rank_numbers[:8]))
        shown_numbers += ", ..." if len(rank_numbers) > 8 else ""
        location = f" on {', '.join(hosts[:4])}" if hosts else ""
        return f"ranks {shown_numbers}{location}" + (", ..." if len(hosts) > 4 else "")


def _find_effect(position: str) -> EndingFault | None:
    """Return the fault of ``--inject`` that keeps a rank at a position; None for none."""
    if position == NO_ANSWER:
        return EndingFault.STOP
    return EndingFault.HANG if position.startswith(_HANG_POSITION) else None


def _choose_verb(ranks: list[int]) -> str:
    return "is" if len(ranks) == 1 else "are"
