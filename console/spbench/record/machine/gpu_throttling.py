"""Figures of the GPUs of cases, and findings on throttled and lost GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench.record.machine.gpu_loads import GpuFigures, GpuLoads, GpuState
from spbench.record.messages.enumeration import enumerate_names, format_case_count
from spbench.record.number_formatting import format_percent
from spbench_core.events.gpu_readings import ThrottleReason
from spbench_core.events.statuses import Activity

TIMED_ACTIVITIES = frozenset({Activity.TIMING, Activity.RUNNING})
"""The activities of a rank while its case is timed."""
MIN_THROTTLED_READINGS = 3
"""The least readings, of a second each, that make a finding: one may be chance."""
MIN_THROTTLED_SHARE = 0.1
"""The least share of the time that makes a finding."""
_ADVICE = {
    ThrottleReason.HARDWARE_THERMAL: "check the cooling",
    ThrottleReason.POWER_BRAKE: "check the power supply",
    ThrottleReason.HARDWARE_SLOWDOWN: "check the cooling and the power supply",
    ThrottleReason.THERMAL: "check the cooling",
    ThrottleReason.RELIABILITY: "compare it with other GPUs of this model",
    ThrottleReason.BOARD_LIMIT: "compare it with other GPUs of this model",
    ThrottleReason.POWER_CAP: "compare only runs with the same power limit",
    ThrottleReason.SYNC_BOOST: "check the other GPUs of its sync boost group",
}
_EXPECTED_REASONS = frozenset({ThrottleReason.POWER_CAP})
"""Reasons that do not make a case noisy: many GPUs reach their power limit under full load."""


@dataclass(frozen=True, slots=True)
class ThrottledGpu:
    """A GPU that was throttled while a case was timed.

    Attributes:
        share: The share of the time.
    """

    host: str
    index: int
    reason: ThrottleReason
    share: float

    @property
    def name(self) -> str:
        """Its name in messages."""
        return name_gpu(self.host, self.index)


def name_gpu(host: str, index: int) -> str:
    """Return the name of a GPU in messages."""
    return f"GPU {index} on {host}"


def add_case_readings(case: CaseState, activity: str, gpus: Iterable[GpuState]) -> None:
    """Add the newest readings of a host's GPUs to a case that is timed.

    Only GPUs that its ranks use count. A program does not report them: for it, all busy ones count.
    """
    addresses_by_host = case.measured.gpu_addresses
    for gpu in gpus:
        if gpu.host in addresses_by_host:
            is_used = gpu.facts.address in addresses_by_host[gpu.host]
        else:
            is_used = activity == Activity.RUNNING and bool(gpu.newest.utilization)
        if is_used:
            key = gpu.host, gpu.facts.index
            case.measured.gpus.setdefault(key, GpuFigures()).add(gpu.newest)


def find_throttled_gpus(case: CaseState) -> list[ThrottledGpu]:
    """Return the GPUs that were throttled in a case, the most serious reason first."""
    gpus = []
    for (host, index), figures in case.measured.gpus.items():
        for reason, count in figures.throttled.items():
            share = count / figures.num_throttle_readings
            if count >= MIN_THROTTLED_READINGS and share >= MIN_THROTTLED_SHARE:
                gpus.append(ThrottledGpu(host, index, reason, share))
    reasons = list(ThrottleReason)
    return sorted(gpus, key=lambda gpu: (reasons.index(gpu.reason), -gpu.share))


def describe_gpu_noise(case: CaseState) -> str | None:
    """Return a clause on the throttled GPU that disturbed a case most, or None."""
    for gpu in find_throttled_gpus(case):
        if gpu.reason not in _EXPECTED_REASONS:
            share_text = format_percent(gpu.share)
            return f"{gpu.name} was throttled ({gpu.reason}) for {share_text} of the time"
    return None


def describe_lost_gpus(gpus: GpuLoads) -> list[str]:
    """Return the finding on GPUs that the driver has lost; empty without any."""
    names = [name_gpu(gpu.host, gpu.facts.index) for gpu in gpus.values() if gpu.figures.lost]
    if not names:
        return []
    verb = "was" if len(names) == 1 else "were"
    return [f"{enumerate_names(names, 'GPUs')} {verb} lost by the driver; check the kernel log"]


def describe_throttled_gpus(cases: Sequence[CaseState]) -> Iterator[str]:
    """Yield the finding on throttled GPUs for each reason.

    Args:
        cases: The judged cases, including those without readings of GPUs.
    """
    gpus_by_case = {case.id: find_throttled_gpus(case) for case in cases if case.measured.gpus}
    for reason in ThrottleReason:
        throttled: dict[str, list[ThrottledGpu]] = defaultdict(list)
        for case_id, gpus in gpus_by_case.items():
            for gpu in gpus:
                if gpu.reason is reason:
                    throttled[case_id].append(gpu)
        if throttled:
            yield _describe_reason(reason, throttled, len(cases))


def _describe_reason(
    reason: ThrottleReason, throttled: Mapping[str, Sequence[ThrottledGpu]], total: int
) -> str:
    worst_first = sorted(
        (gpu for gpus in throttled.values() for gpu in gpus), key=lambda gpu: -gpu.share
    )
    names = list(dict.fromkeys(gpu.name for gpu in worst_first))
    verb = "was" if len(names) == 1 else "were"
    up_to = "up to " if len(worst_first) > 1 else ""
    share_text = format_percent(worst_first[0].share)
    cases_text = format_case_count(list(throttled), total)
    return (
        f"{enumerate_names(names, 'GPUs')} {verb} throttled ({reason}) "
        f"for {up_to}{share_text} of the time {cases_text}; {_ADVICE[reason]}"
    )
