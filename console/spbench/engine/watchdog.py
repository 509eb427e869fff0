"""The deadlines of a job: pure bookkeeping, told of events and asked what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from spbench.engine.faults.fault import Fault, Observation, RankError, RankLoss
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import ASLEEP, SILENCE_LIMIT
from spbench_core.events.statuses import CaseStatus, PhaseProgress, RankStatus, restarts_deadline
from spbench_core.quantities import format_quantity

EXIT_TIMEOUT = 20.0
"""Seconds from the last case's end until every rank has said bye."""

QUIET = 3.0
"""Seconds without a heartbeat that are too many to be chance: it is sent once a second."""

SILENT = "not answering"

Item = tuple[str, int]
"""A case's id and a repeat: what ranks start and end."""


def _not_known(host: str) -> str:
    return ""


@dataclass(slots=True)
class _Rank:
    host: str
    pid: int
    since: float
    heard: float
    case: str | None = None
    loading: bool = False
    ended: bool = False
    standing: PhaseProgress | None = None


class Watchdog:
    """The deadlines of one job: when each rank was last heard, and when each step must be done.

    Only its methods change its state: those named ``on_...`` take events in. Times are seconds of
    one monotonic clock.

    Args:
        items: What all ranks run, in this order.
        case_timeouts: Seconds that each case may take, by its id.
        launched: The time of the launch, until `on_launch` gives it.
        names: Launcher and MPI library, for sentences.
        silence_timeout: Seconds without a sign of life after which a rank counts as hung.
        busy: Returns the load of a host in words if it is high and known, else nothing.
        hosts: The hosts of ranks, as far as they are known before the ranks report them.
        first_rank: The number that rank 0 has in sentences: that in its cases.
    """

    def __init__(
        self,
        np: int,
        items: Sequence[Item],
        start_timeout: float,
        case_timeouts: Mapping[str, float],
        launched: float,
        *,
        names: str = "the launcher and the MPI library",
        silence_timeout: float = SILENCE_LIMIT,
        busy: Callable[[str], str] = _not_known,
        hosts: Mapping[int, str] = MappingProxyType({}),
        first_rank: int = 0,
    ) -> None:
        self.np = np
        self.items = items
        self._start_timeout = start_timeout
        self._case_timeouts = case_timeouts
        self._launched = self._waiting_since = launched
        self._names = names
        self._library: str | None = None
        self._silence_timeout = silence_timeout
        self._busy = busy
        self._expected_hosts = hosts
        self._first_rank = first_rank
        self._ranks: dict[int, _Rank] = {}
        self._greeted: dict[int | None, str] = {}
        self._fault: Fault | None = None
        self._tentative = False
        self._misfit: Fault | None = None
        self._seen: list[Observation] = []
        self._first_start: float | None = None
        self._starts: dict[Item, tuple[float, float]] = {}
        self._renewed: dict[Item, tuple[float, str]] = {}
        self._ended: dict[Item, set[int]] = {}

    @property
    def launched(self) -> float:
        """The time of the launch."""
        return self._launched

    @property
    def fault(self) -> Fault | None:
        """The fault that came first, or its cause once that is known."""
        return self._fault

    @property
    def tentative(self) -> bool:
        """Whether the fault may be what followed from another."""
        return self._tentative

    @property
    def misfit(self) -> Fault | None:
        """The fault of a rank that is not what it should be."""
        return self._misfit

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The evidence of ranks' ends, in order."""
        return tuple(self._seen)

    @property
    def connected_hosts(self) -> Mapping[int | None, str]:
        """The hosts of ranks that have connected, by the numbers that their launcher gave them.

        None is the number of those to which it gave none.
        """
        return self._greeted

    @property
    def expected_hosts(self) -> Mapping[int, str]:
        """The hosts of ranks, as far as they were known before the launch."""
        return self._expected_hosts

    @property
    def ready(self) -> bool:
        """Whether every rank is ready."""
        return len(self._ranks) == self.np

    @property
    def current(self) -> Item | None:
        """The first item that not all ranks have ended; None when all is done."""
        return next((item for item in self.items if len(self._ended.get(item, ())) < self.np), None)

    @property
    def done(self) -> bool:
        """Whether every rank has ended every item and said bye."""
        return self.ready and all(rank.ended for rank in self._ranks.values())

    @property
    def hosts(self) -> dict[int, str]:
        """The known hosts of ranks."""
        hosts = {rank: self._host(rank) for rank in range(self.np)}
        return {rank: host for rank, host in hosts.items() if host}

    @property
    def unconnected(self) -> frozenset[int] | None:
        """The ranks that have not connected; None where one of those that have has no number."""
        return None if None in self._greeted else frozenset(range(self.np)) - self._greeted.keys()

    def on_launch(self, names: str, library: str, now: float) -> None:
        """Note that the job is launched.

        Args:
            names: Launcher and MPI library, for sentences.
            library: The MPI library that ranks are to load, as they report theirs.
            now: The time of the launch.
        """
        self._names = names
        self._library = library
        self._launched = self._waiting_since = now

    def on_hello(self, rank: int | None, host: str) -> None:
        """Note that a rank has connected; None if its launcher gave it no number."""
        self._greeted[rank] = host

    def on_sign_of_life(self, rank: int, now: float) -> None:
        """Note a sign of life."""
        if rank in self._ranks:
            self._ranks[rank].heard = now

    def on_ready(
        self,
        event: Event,
        host: str,
        pid: int,
        now: float,
        launched_as: int | None = None,
    ) -> None:
        """Note that a rank is ready; its world must be as large as the job.

        ``launched_as`` is its number by the launcher's environment.
        """
        number = event["rank"]
        if event["size"] != self.np or number in self._ranks:
            self._mismatch(event, host, launched_as)
            return
        self._ranks[number] = _Rank(host, pid, now, now)
        self._waiting_since = now

    def _mismatch(self, event: Event, host: str, launched_as: int | None) -> None:
        who = host if launched_as is None else f"rank {launched_as} on {host}"
        claim = f"rank {event['rank']} of {event['size']}"
        why = f"{self._names} do not match"
        own = event["versions"].get("mpi")
        if own and self._library and own != self._library:
            why = (
                f"it loads {own}, and the others are to load {self._library}: let {host} find the "
                f"same, by launch.setup, launch.env or launch.python"
            )
        sentence = f"{who} says it is {claim} in a job of {format_quantity(self.np, 'rank')}: {why}"
        rank = event["rank"] if launched_as is None else launched_as
        self.on_misfit(Fault(CaseStatus.ERROR, sentence, rank, missing=True))

    def on_misfit(self, fault: Fault) -> None:
        """Note that a rank is not what it should be, by its world or by what it says."""
        self._misfit = self._misfit or fault
        if self._fault is None:
            self._fault = fault
            self._tentative = True

    def on_loading(self, rank: int) -> None:
        """Note that a rank has its cases and loads what they need."""
        if rank in self._ranks:
            self._ranks[rank].loading = True

    def on_case_start(self, event: Event, now: float) -> None:
        """Note that a rank starts an item; the deadline counts from the last one to do so."""
        item = event["case"], event["repeat"]
        first, _ = self._starts.get(item, (now, now))
        self._starts[item] = first, now
        self._first_start = now if self._first_start is None else self._first_start
        self._ranks[event["rank"]].case = event["case"]
        self._ranks[event["rank"]].since = now
        self._ranks[event["rank"]].standing = None

    def on_progress(self, event: Event, now: float) -> None:
        """Note how far a rank is: the deadline begins anew as `begins_anew` says."""
        rank = self._ranks[event["rank"]]
        item = (event["case"], event.get("repeat", 0))
        before, rank.standing = rank.standing, (event["phase"], event["done"])
        if item in self._starts and restarts_deadline(before, rank.standing):
            self._renewed[item] = now, event["phase"]

    def on_case_end(self, event: Event, now: float) -> None:
        """Note that a rank has ended an item, well or not."""
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
        self._seen.append(error)
        if self._fault is None:
            self._fault = error.to_fault()
            self._tentative = True

    def on_abnormal_end(self, error: RankError) -> None:
        """Note that a rank's program ended as it should not: the cause, should ranks be lost."""
        self._seen.append(error)

    def on_lost(self, rank: int | None, who: str) -> None:
        """Note that a connection has ended before its rank had said bye."""
        self._seen.append(RankLoss(rank, who))
        self.fail(f"{who}, ended without an error message", rank, tentative=True)

    def on_bye(self, rank: int, now: float) -> None:
        """Note that a rank is through: it must have ended all; others may be read later."""
        self._ranks[rank].ended = True
        left = [item for item in self.items if rank not in self._ended.get(item, ())]
        if left:
            self.fail(
                f"{self.describe_rank(rank, now)}, said bye before it had ended {left[0][0]}", rank
            )

    def fail(
        self,
        sentence: str,
        rank: int | None = None,
        *,
        missing: bool = False,
        tentative: bool = False,
        traceback: str | None = None,
    ) -> None:
        """Note what went wrong first; what follows from it is not noted."""
        if self._fault is None:
            self._tentative = tentative
            self._fault = Fault(
                CaseStatus.ERROR, sentence, rank, missing=missing, traceback=traceback
            )

    def cancel(self, sentence: str) -> None:
        """Note that the job is to be ended, unless it has a fault already."""
        if self._fault is None:
            self._fault = Fault(CaseStatus.CANCELLED, sentence)

    def explain(self, fault: Fault) -> None:
        """Replace the fault by its cause, or by the same fault with more details."""
        self._fault = fault

    def describe_rank(self, rank: int, now: float) -> str:
        """Return ``rank 3 on node02, 1.4 s into CASE``, or how long after the launch."""
        known = self._ranks.get(rank)
        who = self._name_ranks([rank])
        if known is None or known.case is None:
            return f"{who}, {now - self._launched:.1f} s after the launch"
        return f"{who}, {now - known.since:.1f} s into {known.case}"

    def find_quiet(self, now: float) -> dict[int, float]:
        """Return the ranks that miss heartbeats while others do not, and for how long they do."""
        silence = {
            number: now - rank.heard for number, rank in self._ranks.items() if not rank.ended
        }
        heard = any(seconds <= QUIET for seconds in silence.values())
        return {rank: s for rank, s in silence.items() if s > QUIET} if heard else {}

    @property
    def start_spread(self) -> float:
        """Seconds from the first to the last rank's start of the item under way."""
        first, last = self._starts.get(self.current, (0.0, 0.0)) if self.current else (0.0, 0.0)
        return last - first

    def find_overdue(self, now: float, slack: float = 0.0) -> Fault | None:
        """Return what is overdue at this moment, or the fault that was noted before.

        ``slack``: seconds by which a deadline may be ahead and counts as passed.
        """
        if self._fault is None:
            self._fault = self._silent(now) or self._late(now + slack)
        return self._fault

    def add_locations(self, fault: Fault, where: Mapping[int, str]) -> Fault:
        """Return a timeout that also says where its ranks stand, the likely culprit first.

        A rank that does not answer, or sleeps, or stands where few do keeps the others waiting.
        """
        places: dict[str, list[int]] = {}
        for rank in sorted(self._ranks):
            places.setdefault(where.get(rank, SILENT), []).append(rank)
        order = sorted(
            places, key=lambda place: (place != SILENT, ASLEEP not in place, len(places[place]))
        )
        parts = [
            f"{self._name_ranks(places[place])} {_are(places[place])} {place}" for place in order
        ]
        more = f" and {len(parts) - 3} more places" if len(parts) > 3 else ""
        sentence = f"{', '.join(parts[:3])}{more}: {fault.message}"
        return replace(fault, message=sentence, rank=places[order[0]][0])

    def _silent(self, now: float) -> Fault | None:
        for number, rank in self._ranks.items():
            silence = now - rank.heard
            # To load torch can keep a heartbeat waiting for longer than this on a slow file system;
            # start_timeout bounds that, until the first rank has loaded it.
            loading = rank.loading and rank.case is None
            if loading and self._first_start is not None:
                loading = now - self._first_start <= self._silence_timeout
            if silence > self._silence_timeout and not loading and not rank.ended:
                sentence = f"rank {number} on {rank.host} silent for {silence:.0f} s"
                if load := self._busy(rank.host):
                    more = f"launch.silence_timeout ({self._silence_timeout:g} s)"
                    sentence += f": {load} there; end what else runs there, or raise {more}"
                return Fault(CaseStatus.ERROR, sentence, number)
        return None

    def _late(self, now: float) -> Fault | None:
        waited = now - self._waiting_since
        if not self.ready:
            return self._late_start(now)
        item = self.current
        if item is None:
            late = [number for number, rank in self._ranks.items() if not rank.ended]
            if waited > EXIT_TIMEOUT and late:
                return Fault(
                    CaseStatus.ERROR, f"{self._name_ranks(late)} did not say bye in {waited:.0f} s"
                )
            return None
        if item in self._starts:
            limit = self._case_timeouts[item[0]]
            started = self._starts[item][1]
            since, phase = self._renewed.get(item, (started, ""))
            waited = now - max(started, since)
            of = f" of {phase}" if phase else ""
            late = sorted(set(self._ranks) - self._ended.get(item, set()))
            what = (
                f"not through with {item[0]} after {waited:.1f} s{of} (its timeout is {limit:g} s)"
            )
            if waited > limit:
                sentence = f"{self._name_ranks(late)} {_are(late)} {what}"
                return Fault(CaseStatus.TIMEOUT, sentence, late[0], item[0])
        elif waited > self._start_timeout:
            return Fault(CaseStatus.ERROR, f"no rank started {item[0]} in {waited:.0f} s")
        return None

    def _late_start(self, now: float) -> Fault | None:
        waited = now - self._launched
        if waited <= self._start_timeout:
            return None
        self._tentative = True  # the launcher may have said that a rank ended, and hang
        sentence = (
            f"{len(self._ranks)} of {format_quantity(self.np, 'rank')} were ready {waited:.0f} s "
            f"after the launch (start_timeout is {self._start_timeout:g} s)"
        )
        return Fault(CaseStatus.ERROR, f"{sentence}{self._late_ones()}")

    def _late_ones(self) -> str:
        """Return who has not connected, or else who has and is not ready."""
        if absent := sorted((self.unconnected or frozenset()) - self._ranks.keys()):
            return f"; {self._name_ranks(absent)} did not connect"
        connected = {rank for rank in self._greeted if rank is not None}
        loading = sorted(connected - self._ranks.keys())
        return (
            f"; {self._name_ranks(loading)} connected and {_are(loading)} not ready"
            if loading
            else ""
        )

    def _host(self, rank: int) -> str:
        known = self._ranks.get(rank)
        return known.host if known else self._greeted.get(rank, self._expected_hosts.get(rank, ""))

    def _name_ranks(self, ranks: list[int]) -> str:
        hosts = sorted({self._host(rank) for rank in ranks} - {""})
        numbers = [rank + self._first_rank for rank in ranks]
        if len(numbers) == 1:
            return f"rank {numbers[0]} on {hosts[0]}" if hosts else f"rank {numbers[0]}"
        shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        where = f" on {', '.join(hosts[:4])}" if hosts else ""
        return f"ranks {shown}{where}" + (", ..." if len(hosts) > 4 else "")


def _are(ranks: list[int]) -> str:
    return "is" if len(ranks) == 1 else "are"
