"""The cost model of stages: passes, messages, all-reduces and memory.

The devices of a stage share each micro-batch in whole samples, so the time of a stage is that of
the largest share. Devices of several speeds get shares by their speed. Messages in opposite
directions overlap. Those of two micro-batches in one direction follow each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster, DeviceKind
from spbench.planner.cluster.messages import MessageCosts
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.plans import Training
from spbench.planner.profile.states import States
from spbench.planner.profile.work import ModelWork, compute_work
from spbench.planner.simulation.memory import DeviceMemory

KindCounts = tuple[tuple[DeviceKind, int], ...]
"""The kinds of devices of a group, and the number of each."""
# Keeps rounding errors from taking a sample away from a device.
_SHARE_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class SampleSharing:
    """The shares of a micro-batch on the devices of a group.

    Attributes:
        work: The model at the largest share of the slowest devices, which determine the time.
        speed: The speed of the slowest devices.
        memories: For each kind with known memory, the model at its largest share and its memory.
        largest: The model at the largest share of all.
    """

    work: ModelWork
    speed: float
    memories: tuple[tuple[ModelWork, float], ...]
    largest: ModelWork


class KindMemory(NamedTuple):
    """The memory that a stage needs on one kind of device, and that the device has.

    Attributes:
        keeping: The need without recomputation.
        recomputing: The need with it.
        capacity_bytes: The memory of the device.
    """

    keeping: DeviceMemory
    recomputing: DeviceMemory
    capacity_bytes: float


class StageCost(NamedTuple):
    """The cost of a stage on a group of devices at one micro-batch size.

    Attributes:
        forward_s: Seconds of the forward pass.
        backward_s: Seconds of the backward pass.
        data_s: Seconds of the backward pass without the weight gradients that zb-h1 computes later.
        weights_s: Seconds of these weight gradients.
        all_reduce_s: Seconds of the sum of its gradients.
        memories: The need and the capacity of each kind of device with known memory.
    """

    forward_s: float
    backward_s: float
    data_s: float
    weights_s: float
    all_reduce_s: float
    memories: tuple[KindMemory, ...]

    @property
    def least_s(self) -> float:
        """Seconds of both passes under the fastest schedule."""
        return self.forward_s + min(self.backward_s, self.data_s + self.weights_s)

    def must_recompute(self, in_flight: int) -> bool | None:
        """Return whether the stage must recompute to fit; None if it cannot fit.

        Recomputation only costs time, so a stage that fits without it does not recompute.

        Args:
            in_flight: Micro-batches in flight.
        """
        if all(
            keeping.compute_peak_bytes(in_flight) <= capacity
            for keeping, _, capacity in self.memories
        ):
            return False
        if all(
            recomputing.compute_peak_bytes(in_flight) <= capacity
            for _, recomputing, capacity in self.memories
        ):
            return True
        return None


class CostModel:
    """The costs of a model on a cluster; each cost is computed once.

    Args:
        states: The model.
        cluster: The cluster.
        training: The parameters of the step; its micro-batch size is not used.
    """

    def __init__(self, states: States, cluster: Cluster, training: Training) -> None:
        self.states = states
        self.cluster = cluster
        self.training = training
        self.message_costs = MessageCosts(cluster)
        self._top_speed = max(kind.speed for kind in cluster.kinds)
        self._has_overheads = any(link.overhead_s or link.copy_bandwidth for link in cluster.links)
        self._works: dict[int, ModelWork] = {}
        self._kind_counts: dict[DeviceGroup, KindCounts] = {}
        self._sharings: dict[tuple[DeviceGroup, int], SampleSharing] = {}
        self._sharings_of_kinds: dict[tuple[KindCounts, int], SampleSharing] = {}
        self._stages: dict[tuple[DeviceGroup, int, int, int], StageCost] = {}
        self._skip_routes: dict[tuple[int, ...], dict[tuple[int, int], float]] = {}

    def compute_single_s(self, sizes: Sequence[int]) -> float:
        """Return the seconds of the batch on the fastest device, ignoring its memory.

        Args:
            sizes: The allowed micro-batch sizes; the one with the shortest step counts.
        """
        batch = self.training.global_batch_size
        return (
            min(self.get_work(size).total_s * (batch // size) for size in sizes) / self._top_speed
        )

    def compute_sequential_s(
        self, spans: Iterable[tuple[int, int, DeviceGroup]], micro_batch_size: int
    ) -> float:
        """Return the seconds of the batch on the fastest device, in a plan's shares.

        The device runs the shares of all devices in each micro-batch, one after another. Small
        shares can take less time than their part of a micro-batch. Without this reference the
        speedup of a plan could exceed its number of devices.

        Args:
            spans: The plan's stages: first state, state after the last, and group.
            micro_batch_size: Samples of a micro-batch.
        """
        micro_batch_s = 0.0
        for start, end, group in spans:
            for samples, devices in self._split_micro_batch(group, micro_batch_size):
                work = self.get_work(samples)
                forward_s = work.forward_s[end] - work.forward_s[start]
                backward_s = work.backward_s[end] - work.backward_s[start]
                data_s = work.data_s[end] - work.data_s[start]
                weights_s = work.weights_s[end] - work.weights_s[start]
                micro_batch_s += devices * (forward_s + min(backward_s, data_s + weights_s))
        micro_batches = self.training.global_batch_size // micro_batch_size
        return micro_batch_s * micro_batches / self._top_speed

    def _split_micro_batch(
        self, group: DeviceGroup, micro_batch_size: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the sizes of the shares of a micro-batch, and the devices with each."""
        kinds = self.count_device_kinds(group)
        shares = share_samples([(kind.speed, count) for kind, count in kinds], micro_batch_size)
        samples_left = micro_batch_size
        for (_, count), samples in zip(kinds, shares, strict=True):
            samples_of_kind = min(samples_left, samples * count)
            if samples_of_kind:
                samples_left -= samples_of_kind
                full_devices, remainder = divmod(samples_of_kind, samples)
                yield samples, full_devices
                if remainder:
                    yield remainder, 1

    def get_work(self, samples: int) -> ModelWork:
        """Return the work of the model at a number of samples."""
        if samples not in self._works:
            peak = self.training.peak_activation_bytes
            self._works[samples] = compute_work(self.states, samples, peak)
        return self._works[samples]

    def get_sharing(self, group: DeviceGroup, micro_batch_size: int) -> SampleSharing:
        """Return how a group shares a micro-batch."""
        key = group, micro_batch_size
        if key not in self._sharings:
            kinds_key = self.count_device_kinds(group), micro_batch_size
            if kinds_key not in self._sharings_of_kinds:
                self._sharings_of_kinds[kinds_key] = self._compute_sharing(*kinds_key)
            self._sharings[key] = self._sharings_of_kinds[kinds_key]
        return self._sharings[key]

    def _compute_sharing(self, kinds: KindCounts, micro_batch_size: int) -> SampleSharing:
        shares = share_samples([(kind.speed, count) for kind, count in kinds], micro_batch_size)
        kind_works = [
            (kind, self.get_work(samples)) for (kind, _), samples in zip(kinds, shares, strict=True)
        ]
        slowest, slowest_work = max(
            kind_works, key=lambda kind_work: kind_work[1].total_s / kind_work[0].speed
        )
        memories = tuple(
            (work, kind.memory_bytes) for kind, work in kind_works if kind.memory_bytes is not None
        )
        return SampleSharing(slowest_work, slowest.speed, memories, self.get_work(max(shares)))

    def get_stage_cost(
        self, group: DeviceGroup, start: int, end: int, micro_batch_size: int
    ) -> StageCost:
        """Return the cost of a stage with the states from `start` up to `end`, exclusive."""
        key = group, start, end, micro_batch_size
        if key not in self._stages:
            sharing = self.get_sharing(group, micro_batch_size)
            work = sharing.work
            speed = sharing.speed
            all_reduce = self.message_costs.get_all_reduce_cost(group)
            self._stages[key] = StageCost(
                forward_s=(work.forward_s[end] - work.forward_s[start]) / speed,
                backward_s=(work.backward_s[end] - work.backward_s[start]) / speed,
                data_s=(work.data_s[end] - work.data_s[start]) / speed,
                weights_s=(work.weights_s[end] - work.weights_s[start]) / speed,
                all_reduce_s=all_reduce.compute_seconds(
                    work.parameter_bytes[end] - work.parameter_bytes[start]
                ),
                memories=tuple(
                    KindMemory(
                        self.compute_device_memory(share_work, start, end, recompute=False),
                        self.compute_device_memory(share_work, start, end, recompute=True),
                        capacity_bytes,
                    )
                    for share_work, capacity_bytes in sharing.memories
                ),
            )
        return self._stages[key]

    def count_device_kinds(self, group: DeviceGroup) -> KindCounts:
        """Return the kinds of a group's devices."""
        if group not in self._kind_counts:
            counts: Counter[DeviceKind] = Counter()
            machines = zip(self.cluster.machines, group.first, group.last, strict=True)
            for machine, first, last in machines:
                if last > first:
                    counts.update(machine.devices[first:last])
            self._kind_counts[group] = tuple(counts.items())
        return self._kind_counts[group]

    def compute_device_memory(
        self, work: ModelWork, start: int, end: int, recompute: bool
    ) -> DeviceMemory:
        """Return the memory need of a device with the states from `start` up to `end`."""
        kept_bytes = work.kept_bytes[end] - work.kept_bytes[start]
        fixed_bytes = self.training.optimizer_memory_scaling * float(
            work.parameter_bytes[end] - work.parameter_bytes[start]
        )
        working_bytes = max(work.working_bytes[start:end])
        if recompute:
            return DeviceMemory(fixed_bytes, work.crossing_bytes[start], working_bytes + kept_bytes)
        return DeviceMemory(fixed_bytes, kept_bytes, working_bytes)

    def compute_missing_bytes(
        self, sharing: SampleSharing, start: int, end: int, in_flight: int, recompute: bool
    ) -> float:
        """Return the bytes that a stage's devices lack; negative if some are left."""
        return max(
            (
                self.compute_device_memory(work, start, end, recompute).compute_peak_bytes(
                    in_flight
                )
                - capacity_bytes
                for work, capacity_bytes in sharing.memories
            ),
            default=-math.inf,
        )

    def get_crossing_bytes(self, cut: int, micro_batch_size: int) -> float:
        """Return the bytes of a micro-batch that cross the cut before a state."""
        return self.get_work(micro_batch_size).crossing_bytes[cut]

    def compute_passing_bytes(self, start: int, end: int, micro_batch_size: int) -> float:
        """Return the bytes of a micro-batch that a stage only passes on."""
        return self._compute_batch_ratio(micro_batch_size) * self.states.skips.get_bytes_past(
            start, end
        )

    def find_skip_routes(
        self, ends: tuple[int, ...], micro_batch_size: int
    ) -> dict[tuple[int, int], float]:
        """Return the bytes that can go straight past stages, by source and target stage."""
        if ends not in self._skip_routes:
            self._skip_routes[ends] = self.states.skips.find_straight_routes(ends)
        batch_ratio = self._compute_batch_ratio(micro_batch_size)
        return {
            route: batch_ratio * route_bytes
            for route, route_bytes in self._skip_routes[ends].items()
        }

    def _compute_batch_ratio(self, micro_batch_size: int) -> float:
        return micro_batch_size / self.states.profile.batch_size

    def compute_overhead_s(
        self, source: DeviceGroup, target: DeviceGroup, message_bytes: float
    ) -> float:
        """Return the seconds for which a message keeps both stages from computing.

        Args:
            source: The group of one stage.
            target: The group of the other stage.
            message_bytes: Bytes of the message; 0 for none.
        """
        if not self._has_overheads or not message_bytes:
            return 0.0
        return self.message_costs.get_overhead_cost(source, target).compute_seconds(message_bytes)


def share_samples(speed_counts: Sequence[tuple[float, int]], samples: int) -> list[int]:
    """Return the largest share of each kind of device for the shortest total time.

    Shares are whole samples. In the least time in which the group can do all samples, each device
    does at most the samples that it has time for.

    Args:
        speed_counts: The speed of each kind, and its number of devices.
        samples: Samples to share.
    """
    if len(speed_counts) == 1:
        return [math.ceil(samples / speed_counts[0][1])]
    least_time = min(_find_least_time(speed_counts, speed, samples) for speed, _ in speed_counts)
    return [min(_count_samples_in_time(least_time, speed), samples) for speed, _ in speed_counts]


def _find_least_time(
    speed_counts: Sequence[tuple[float, int]], speed: float, samples: int
) -> float:
    """Return the least time of whole samples at one speed that suffices for the group."""
    low_samples = 1
    high_samples = samples
    while low_samples < high_samples:
        middle_samples = (low_samples + high_samples) // 2
        time_at_speed = middle_samples / speed
        samples_done = sum(
            _count_samples_in_time(time_at_speed, kind_speed) * count
            for kind_speed, count in speed_counts
        )
        if samples_done >= samples:
            high_samples = middle_samples
        else:
            low_samples = middle_samples + 1
    return low_samples / speed


def _count_samples_in_time(time: float, speed: float) -> int:
    return math.floor(time * speed * (1.0 + _SHARE_SLACK))
