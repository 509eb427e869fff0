"""The state of a run, which only events change.

So a replay of its log leads to the same state.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from spbench.record.case_figures import refers_to_cases
from spbench.record.case_parts import (
    CaseIdentity,
    CaseRank,
    CheckResult,
    PreviousAttempt,
    RepeatsEnd,
)
from spbench.record.case_state import CaseState
from spbench.record.machine.fingerprint import MachineParts
from spbench.record.machine.gpu_loads import GpuLoads, compute_mean_utilization
from spbench.record.machine.gpu_throttling import TIMED_ACTIVITIES, add_case_readings
from spbench.record.machine.host_loads import HostLoads
from spbench.record.number_formatting import format_value
from spbench.record.planted_faults import FaultOutcome, find_run_outcome
from spbench.record.run_parts import IgnoredEvents, JobState, RankState, RunInfo
from spbench.record.stragglers import Straggler
from spbench.stats.summary import median
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.state_machines import (
    CASE_TRANSITIONS,
    JOB_TRANSITIONS,
    RANK_TRANSITIONS,
    SHARED_CASE_START,
)
from spbench_core.events.statuses import (
    Activity,
    CaseStatus,
    JobStatus,
    RankPhase,
    RankStatus,
    RunStatus,
)

_SAMPLES = frozenset(RANK_TRANSITIONS["samples"])
"""The phases of ranks that may report samples. Samples change no phase."""


class RunState:
    """The state of a run from its events.

    `state_machines` defines when events are legal.
    """

    def __init__(self) -> None:
        self.run: RunInfo | None = None
        self.cases: dict[str, CaseState] = {}
        self.jobs: dict[int, JobState] = {}
        self.ranks: dict[int, RankState] = {}
        self.errors: list[str] = []
        self.ignored = IgnoredEvents()
        self._findings: list[str] = []
        self.referring: list[str] = []
        """The ids of cases with expectations that depend on figures of other cases."""
        self.machines = MachineParts()
        self.host_loads = HostLoads()
        self.gpu_loads = GpuLoads()
        self._ended_jobs: set[int] = set()
        """The jobs that have ended."""
        self._jobs_on_hosts: set[int] = set()
        """The running jobs that have their own host and share their cases."""
        self.skipped_message: str | None = None
        """A message on the lines of a recorded log that could not be read."""
        self._handlers: dict[str, Callable[[Event], None]] = {
            name.removeprefix("_on_"): getattr(self, name)
            for name in dir(type(self))
            if name.startswith("_on_")
        }

    @property
    def findings(self) -> list[str]:
        """The findings of the run, with the one on ignored events."""
        ignored = self.ignored.finding
        more = [ignored] if ignored and ignored not in self._findings else []
        return [*self._findings, *more]

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each status."""
        return dict(Counter(case.status for case in self.cases.values()))

    @property
    def fault_outcome(self) -> FaultOutcome | None:
        """FOUND if the run failed only because its planted faults were found."""
        if self.run is None or self.run.status is None:
            return None
        cases = (case.execution for case in self.cases.values())
        return find_run_outcome(
            self.run.status, ((case.status, case.reason) for case in cases), self.errors
        )

    def apply(self, event: Event) -> None:
        """Apply an event of a rank or the console.

        An event of unknown kind changes nothing.
        """
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event)

    def _ignore(self, event: Event, reason: str) -> None:
        self.ignored.add(f"{event['event']} {reason}")

    def _advance_case(self, event: Event, case: CaseState) -> bool:
        """Change the status of a case; if that is illegal, ignore it, return False."""
        status = CASE_TRANSITIONS[event["event"]].get(case.status)
        if status is None:
            self._ignore(event, f"of case {case.id}, which is {case.status}")
            return False
        case.execution.status = status
        return True

    def _advance_rank(self, event: Event) -> RankState | None:
        """Change the phase of an event's rank; if illegal, ignore the event, return None."""
        rank = self.ranks.get(event["rank"])
        if rank is not None and rank.case == event["case"]:
            phase = RANK_TRANSITIONS[event["event"]].get(rank.phase)
            if phase is not None and event.get("job") not in self._ended_jobs:
                rank.phase = phase
                rank.last_heard = event["time"]
                return rank
        self._ignore(event, f"of case {event['case']} by {_describe(event['rank'], rank)}")
        return None

    def _on_run_start(self, event: Event) -> None:
        self.run = RunInfo(
            id=event["id"],
            suite=event["suite"],
            description=event["description"],
            argv=tuple(event["argv"]),
            seed=event["seed"],
            started=event["time"],
            environment=event["environment"],
        )
        for case in event["cases"]:
            self.cases[case["id"]] = CaseState(CaseIdentity.from_event(case))
        self.referring = [case.id for case in self.cases.values() if refers_to_cases(case)]

    def _on_run_resumed(self, event: Event) -> None:
        for name in event["cases"]:
            previous = self.cases[name]
            case = self.cases[name] = CaseState(previous.identity)
            # a case that was tried again stays flaky
            case.execution.previous_attempts = previous.execution.previous_attempts
        for job in self.jobs.values():
            job.status = JOB_TRANSITIONS["run_resumed"][job.status]
        self._ended_jobs = set(self.jobs)
        self.errors = []
        self._findings = []
        self.ranks = {}
        self._jobs_on_hosts = set()
        if self.run is not None:
            self.run.finished = self.run.status = self.run.exit_code = None
            host = event["environment"].get("host")
            continuation = {"time": event["time"], "host": host, "cases": len(event["cases"])}
            self.run.resumed.append(continuation)

    def _on_retry(self, event: Event) -> None:
        for name in event["cases"]:
            previous = self.cases[name]
            if previous.status not in CASE_TRANSITIONS["retry"]:
                self._ignore(event, f"of case {name}, which is {previous.status}")
                continue
            case = self.cases[name] = CaseState(previous.identity)
            attempt = PreviousAttempt(previous.status, previous.execution.reason)
            case.execution.previous_attempts = (*previous.execution.previous_attempts, attempt)

    def _on_job_start(self, event: Event) -> None:
        previous = self.jobs.get(event["job"])
        if previous is not None and previous.status not in JOB_TRANSITIONS["job_start"]:
            self._ignore(event, f"of job {previous.number}, which is {previous.status}")
            return
        self._ended_jobs.discard(event["job"])
        fields = {name: event[name] for name in ("launcher", "version", "hostfile", "env", "np")}
        self.jobs[event["job"]] = JobState(
            number=event["job"],
            argv=tuple(event["argv"]),
            cases=tuple(event["cases"]),
            started=event["time"],
            oversubscribed=event["oversubscribed"],
            requested_placement=event.get("asked", {}),
            first_rank=event.get("first_rank", 0),
            **fields,
        )
        has_own_host = "first_rank" in event
        concurrent_cases = {
            case for number in self._jobs_on_hosts for case in self.jobs[number].cases
        }
        if not has_own_host or concurrent_cases.isdisjoint(event["cases"]):
            self.ranks = {}
            self.gpu_loads.forget_ranks()
            self._jobs_on_hosts = set()
        if has_own_host:
            self._jobs_on_hosts.add(event["job"])
            for rank in self.jobs[event["job"]].rank_range:
                # of an earlier launch on the same host, which has ended
                self.ranks.pop(rank, None)
        for case in event["cases"]:
            self.cases[case].execution.job = event["job"]

    def _on_job_end(self, event: Event) -> None:
        job = self.jobs[event["job"]]
        if job.status not in JOB_TRANSITIONS["job_end"]:
            self._ignore(event, f"of job {job.number}, which is {job.status}")
            return
        job.status = JOB_TRANSITIONS["job_end"][job.status]
        self._ended_jobs.add(job.number)
        self._jobs_on_hosts.discard(job.number)
        job.finished = max(event["time"], job.started)
        job.reason = event["reason"]
        transitions = RANK_TRANSITIONS["job_end"]
        for rank in self.ranks.values():
            if rank.rank in job.rank_range:
                rank.phase = transitions.get(rank.phase, rank.phase)

    def _on_rank_lost(self, event: Event) -> None:
        rank = self.ranks.get(event["rank"])
        if rank is not None:
            rank.phase = RANK_TRANSITIONS["rank_lost"][rank.phase]
        job = self.jobs.get(event.get("job", 0))
        case = self._find_case_of_lost_rank(job, rank)
        if case is None:
            return
        if job is not None and not case.measured.known_ranks:
            case.measured.unstarted_ranks.update(
                (number, CaseRank(member.facts, member.facts.device, {}))
                for number, member in self.ranks.items()
                if number in job.rank_range
            )
        recorded = case.measured.known_ranks.get(event["rank"])
        if recorded is not None:
            recorded.status = RankStatus.LOST

    def _find_case_of_lost_rank(
        self, job: JobState | None, rank: RankState | None
    ) -> CaseState | None:
        """Return the case of a lost rank, or else the first open case of its launch.

        A launch of a case may be lost before its ranks begin the case, after earlier launches.
        """
        if rank is not None and rank.case is not None:
            return self.cases.get(rank.case)
        cases = () if job is None else map(self.cases.__getitem__, job.cases)
        return next((case for case in cases if not case.status.is_final), None)

    def _on_repeats_end(self, event: Event) -> None:
        case = self.cases[event["case"]]
        if self._advance_case(event, case):
            end = RepeatsEnd(event["repeats"], event["why"], event["width"])
            case.measured.repeats_end = end

    def _on_case_begin(self, event: Event) -> None:
        case = self.cases[event["case"]]
        if self._advance_case(event, case):
            case.execution.started = event["time"]
            case.execution.has_begun = True

    def _on_case_judged(self, event: Event) -> None:
        execution = self.cases[event["case"]].execution
        execution.status = CaseStatus(event["status"])
        execution.reason = event["reason"]
        execution.expectations = event["expectations"]
        execution.stragglers = tuple(Straggler(**item) for item in event.get("stragglers", ()))
        execution.job = event.get("job", execution.job)
        if execution.started is None:
            execution.finished = None
        else:
            execution.finished = event["time"]
            # Without a case_begin, the start is by a rank's clock, which may be ahead.
            execution.started = min(execution.started, execution.finished)
        if "traceback" in event:  # that of the rank so far may only be a consequence
            execution.traceback = event["traceback"]

    def _on_run_end(self, event: Event) -> None:
        if self.run is not None:
            self.run.finished = max(event["time"], self.run.started)
            self.run.status = RunStatus(event["verdict"])
            self.run.exit_code = event["exit_code"]
            self.run.load_after = event.get("load")
        self.errors = list(event["errors"])
        self._findings = list(event["findings"])

    def _get_or_add_rank(self, event: Event) -> RankState:
        """Return the rank of an event, which was heard at its time."""
        rank = self.ranks.get(event["rank"])
        if rank is None:
            rank = self.ranks[event["rank"]] = RankState(
                event["rank"], RankFacts(event.get("host", ""))
            )
        rank.last_heard = event["time"]
        return rank

    def _on_hello(self, event: Event) -> None:
        if event["rank"] is not None:
            rank = self._get_or_add_rank(event)
            rank.facts = replace(rank.facts, pid=event["pid"])

    def _on_ready(self, event: Event) -> None:
        rank = self._get_or_add_rank(event)
        phase = RANK_TRANSITIONS["ready"].get(rank.phase)
        if phase is None or event.get("job") in self._ended_jobs:
            self._ignore(event, f"of rank {rank.rank}, which is {rank.phase}")
            return
        rank.phase = phase
        rank.facts = RankFacts.from_event(event, rank.host)
        self.machines.add(rank.facts)
        job = self.jobs.get(event.get("job", max(self.jobs, default=0)))
        if job is not None:
            job.ranks[rank.rank] = rank.facts
            if job.status is JobStatus.STARTING and len(job.ranks) == job.np:
                job.status = JobStatus.RUNNING

    def _on_heartbeat(self, event: Event) -> None:
        rank = self.ranks.get(event["rank"])
        if rank is not None:
            rank.last_heard = event["time"]
            if "load" in event:
                self.host_loads.add(rank.host, event["load"])
            if "gpus" in event:
                self._add_gpu_readings(rank, event["gpus"])

    def _add_gpu_readings(self, rank: RankState, readings: list[Mapping[str, Any]]) -> None:
        gpus = self.gpu_loads.add(rank.host, readings)
        mean = compute_mean_utilization(gpus)
        if mean is not None:
            self.host_loads.add(rank.host, {"gpu": mean})
        case = self.cases.get(rank.case or "")
        is_timed = rank.phase is RankPhase.WORKING and rank.activity in TIMED_ACTIVITIES
        if case is not None and is_timed:
            add_case_readings(case, rank.activity, gpus)

    def _on_case_start(self, event: Event) -> None:
        case = self.cases[event["case"]]
        rank = self._get_or_add_rank(event)
        statuses = SHARED_CASE_START if case.identity.shares else CASE_TRANSITIONS["case_start"]
        if case.status not in statuses:
            self._ignore(event, f"of case {case.id}, which is {case.status}")
            return
        if rank.phase not in RANK_TRANSITIONS["case_start"] or event.get("job") in self._ended_jobs:
            self._ignore(event, f"of case {case.id} by {_describe(rank.rank, rank)}")
            return
        case.execution.status = statuses[case.status]
        rank.phase = RANK_TRANSITIONS["case_start"][rank.phase]
        rank.case = case.id
        rank.repeat = event["repeat"]
        rank.activity = ""
        rank.phase_since = event["time"]
        rank.done = 0
        rank.total = 0
        rank.last_ms = None
        execution = case.execution
        coordinates = case.identity.coordinates
        if execution.started is None:
            execution.started = event["time"]
            execution.attempts = 1 + len(execution.previous_attempts)
        if execution.job is not None:
            case.measured.jobs[event["repeat"]] = execution.job
        number = event.get("job", execution.job)
        job = None if number is None else self.jobs.get(number)
        if job is not None and job.first_case is None:
            job.first_case = event["time"]
        own_coordinates = coordinates[rank.rank] if rank.rank < len(coordinates) else {}
        previous = case.measured.ranks.get(rank.rank)
        case.measured.ranks[rank.rank] = CaseRank(
            rank.facts,
            rank.facts.device,
            own_coordinates,
            RankStatus.RUNNING,
            disturbances=previous.disturbances if previous else {},
        )

    def _on_progress(self, event: Event) -> None:
        if (rank := self._advance_rank(event)) is None:
            return
        if event["phase"] != rank.activity or event["done"] < rank.done:
            rank.phase_since = event["time"]
        rank.activity = event["phase"]
        rank.done = event["done"]
        rank.total = event["total"]
        if rank.activity == Activity.TIMING and "repeat" in event and event["case"] in self.cases:
            timing = self.cases[event["case"]].measured.timing
            timing.setdefault(event["repeat"], event["time"])

    def _on_samples(self, event: Event) -> None:
        rank_number = event["rank"]
        metric = event["metric"]
        values = event["values"]
        rank = self.ranks.get(rank_number)
        # Most events are samples: a legal one costs no call here.
        if (
            rank is None
            or rank.case != event["case"]
            or rank.phase not in _SAMPLES
            or event.get("job") in self._ended_jobs
        ):
            self._ignore(event, f"of case {event['case']} by {_describe(rank_number, rank)}")
            return
        rank.last_heard = event["time"]
        samples = self.cases[event["case"]].measured.samples
        repeat = event["repeat"]
        try:  # most events extend existing samples
            samples[metric][rank_number][repeat].extend(values)
        except KeyError:
            by_repeat = samples.setdefault(metric, {}).setdefault(rank_number, {})
            by_repeat[repeat] = array("d", values)
        if metric == "time_ms" and values:
            rank.last_ms = values[-1]
            rank.last_timed = event["time"]

    def _on_check(self, event: Event) -> None:
        if self._advance_rank(event) is None:
            return
        key = (event["repeat"], event["rank"])
        measured = self.cases[event["case"]].measured
        rank = event["rank"]
        result = CheckResult.from_event(event)
        measured.passed_by_rank[rank] = result.passed and measured.passed_by_rank.get(rank, True)
        outcomes = measured.passed_by_check.setdefault(event["name"], {})
        outcomes[rank] = result.passed and outcomes.get(rank, True)
        results = measured.checks.setdefault(event["name"], {})
        if key in results:
            results[key].add(result)
        else:
            results[key] = result

    def _on_metric(self, event: Event) -> None:
        if self._advance_rank(event) is None:
            return
        measured = self.cases[event["case"]].measured
        name = event["name"]
        value = event["value"]
        if "measured_by" in event:
            references = measured.references.setdefault(name, {})
            reference = {"value": value, "measured_by": event["measured_by"]}
            references[event["repeat"], event["rank"]] = reference
            info = self.cases[event["case"]].identity.metrics.get(name)
            unit = info.unit if info is not None else ""
            measured.median_references[name] = _compute_median_reference(
                references.values(), name, unit
            )
        elif event.get("labels"):
            measured.labelled.append(
                {"name": name, "value": value, "rank": event["rank"], **event["labels"]}
            )
        else:
            measured.repeat_values.setdefault(name, {})[event["repeat"], event["rank"]] = value

    def _on_device(self, event: Event) -> None:
        """Note the device of a rank in this case; the facts of its host are kept."""
        rank = self._advance_rank(event)
        case = self.cases[event["case"]]
        if rank is not None and rank.rank in case.measured.ranks:
            state = case.measured.ranks[rank.rank]
            state.device = event["device"]
            state.is_near = event.get("near")
            address = state.gpu_address = event.get("address")
            self.gpu_loads.assign(rank.rank, rank.host, address)
            addresses = case.measured.gpu_addresses.setdefault(rank.host, set())
            if address is not None:
                addresses.add(address)

    def _on_choice(self, event: Event) -> None:
        if self._advance_rank(event) is None:
            return
        choice = {"value": event["value"], "reason": event["reason"]}
        self.cases[event["case"]].measured.choices[event["name"]] = choice

    def _on_case_end(self, event: Event) -> None:
        rank = self._advance_rank(event)
        case = self.cases[event["case"]]
        if rank is None:
            return
        status = RankStatus(event["status"])
        if status is RankStatus.ERROR:
            rank.phase = RankPhase.ERROR
        rank.done = rank.total = 0
        if rank.rank in case.measured.ranks:
            state = case.measured.ranks[rank.rank]
            state.status = status
            state.error = event.get("error")
            for name, value in event.get("disturbed", {}).items():
                worst = max(value, state.disturbances.get(name, 0.0))
                state.disturbances = {**state.disturbances, name: worst}
        if status is RankStatus.OK:
            case.measured.ended.add((event["repeat"], event["rank"]))
            case.measured.last_end = event["time"]
        elif case.execution.traceback is None:
            case.execution.traceback = event.get("error", {}).get("traceback")

    def _on_bye(self, event: Event) -> None:
        rank = self._get_or_add_rank(event)
        phase = RANK_TRANSITIONS["bye"].get(rank.phase)
        if phase is None:
            self._ignore(event, f"of rank {rank.rank}, which is {rank.phase}")
        else:
            rank.phase = phase


def _describe(number: int, rank: RankState | None) -> str:
    """Describe a rank with its phase, and with its case if it has one."""
    if rank is None:
        return f"rank {number}, which is not ready"
    case = f" of {rank.case}" if rank.case else ""
    return f"rank {number}, in phase {rank.phase}{case}"


def _compute_median_reference(
    references: Collection[dict[str, Any]], metric: str, unit: str
) -> dict[str, Any]:
    """Return the median of a metric's references, with the origin of the central one.

    An origin may name parts that add up to its own value, so it is marked if that is
    not the median.
    """
    ordered = sorted(
        (reference for reference in references if reference["value"] is not None),
        key=lambda reference: float(reference["value"]),
    )
    if not ordered:
        return [*references][-1]
    median_value = median(float(reference["value"]) for reference in ordered)
    central = ordered[(len(ordered) - 1) // 2]
    origin = central["measured_by"]
    if median_value != central["value"]:
        central_text = format_value(central["value"], unit, metric)
        origin = f"{origin} ({central_text}; the median of {len(ordered)} repeats is shown)"
    return {"value": median_value, "measured_by": origin}
