"""The cost model of stages on groups of devices: passes, messages, all-reduces and memory.

Replicas share each micro-batch in whole samples, so the time of a stage is that of the largest
share; devices of several speeds get shares by their speed. Messages go each way at once; those of
two micro-batches the same way, one after another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spbench.planner.cluster.machines import Cluster, DeviceKind
from spbench.planner.cluster.messages import LinkCosts
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.profile.states import States
from spbench.planner.profile.work import ModelWork, compute_work
from spbench.planner.search.sharing import share_samples
from spbench.planner.simulation.memory import DeviceMemory
from spbench.planner.training import Training

Kinds = tuple[tuple[DeviceKind, int], ...]
"""Kinds of devices of a group, and how many of each."""


@dataclass(frozen=True, slots=True)
class SampleSharing:
    """The shares of a micro-batch on the devices of a group.

    Attributes:
        work: The model at the largest share of the devices that take longest.
        speed: Theirs.
        held: The model at each kind's largest share, and that kind's memory; for those whose
            memory is known.
        most: The model at the largest share of all.
    """

    work: ModelWork
    speed: float
    memories: tuple[tuple[ModelWork, float], ...]
    largest: ModelWork


class StageCost(NamedTuple):
    """The cost of a stage on a group of devices at one micro-batch size.

    Attributes:
        forward_s: Seconds of the forward pass.
        backward_s: Seconds of the backward pass.
        data_s: Seconds of it without the gradients of weights that are computed later in zb-h1.
        weights_s: Seconds of these.
        all_reduce_s: Seconds of the sum of its gradients.
        memories: What a device of each kind whose memory is known needs, without and with
            recomputation, and how much it has.
    """

    forward_s: float
    backward_s: float
    data_s: float
    weights_s: float
    all_reduce_s: float
    memories: tuple[tuple[DeviceMemory, DeviceMemory, float], ...]

    @property
    def least_s(self) -> float:
        """Seconds of both passes under the schedule that takes least."""
        return self.forward_s + min(self.backward_s, self.data_s + self.weights_s)

    def must_recompute(self, kept: int) -> bool | None:
        """Return whether it must recompute its activations to fit; None where it cannot.

        Recomputation takes time and gives none, so a stage that fits without it is without it.

        Args:
            kept: Micro-batches in flight.
        """
        if all(plain.peak(kept) <= memory for plain, _, memory in self.memories):
            return False
        if all(again.peak(kept) <= memory for _, again, memory in self.memories):
            return True
        return None


class CostModel:
    """The cost model of a model on a cluster; each cost is worked out once.

    Args:
        states: The model.
        cluster: The cluster.
        training: The step; its micro-batch size is not used.
    """

    def __init__(self, states: States, cluster: Cluster, training: Training) -> None:
        self.states = states
        self.cluster = cluster
        self.training = training
        self.links = LinkCosts(cluster)
        self._fastest = max(kind.speed for kind in cluster.kinds)
        self._overheads = any(link.overhead_s or link.copy_bandwidth for link in cluster.links)
        self._works: dict[int, ModelWork] = {}
        self._kinds: dict[DeviceGroup, Kinds] = {}
        self._sharings: dict[tuple[DeviceGroup, int], SampleSharing] = {}
        self._sharings_of_kinds: dict[tuple[Kinds, int], SampleSharing] = {}
        self._stages: dict[tuple[DeviceGroup, int, int, int], StageCost] = {}
        self._ways_past: dict[tuple[int, ...], dict[tuple[int, int], float]] = {}

    def single_s(self, sizes: Sequence[int]) -> float:
        """Return the seconds of the whole batch on the fastest device; its memory does not matter.

        Args:
            sizes: The micro-batch sizes that are allowed; the one with the shortest step counts.
        """
        batch = self.training.global_batch_size
        return min(self.work(size).total * (batch // size) for size in sizes) / self._fastest

    def sequential_s(
        self, spans: Iterable[tuple[int, int, DeviceGroup]], micro_batch: int
    ) -> float:
        """Return the seconds of the whole batch on the fastest device, in the shares of a plan.

        The device runs the shares of all devices in each micro-batch, one after another. Small
        shares can take less time than their part of a micro-batch. Without this reference the
        speedup of a plan could exceed its number of devices.

        Args:
            spans: The plan's stages: first state, the state after the last, and devices.
            micro_batch: Samples that go through the stages at once.
        """
        seconds = 0.0
        for start, end, group in spans:
            for samples, count in self._pieces(group, micro_batch):
                work = self.work(samples)
                forward = work.forward[end] - work.forward[start]
                backward = work.backward[end] - work.backward[start]
                data = work.data[end] - work.data[start]
                weights = work.weights[end] - work.weights[start]
                seconds += count * (forward + min(backward, data + weights))
        return seconds * (self.training.global_batch_size // micro_batch) / self._fastest

    def _pieces(self, group: DeviceGroup, micro_batch: int) -> Iterator[tuple[int, int]]:
        """Yield each size of a share of a micro-batch, and the number of devices with it."""
        kinds = self.device_kinds(group)
        shares = share_samples([(kind.speed, count) for kind, count in kinds], micro_batch)
        left = micro_batch
        for (_, count), samples in zip(kinds, shares, strict=True):
            taken = min(left, samples * count)
            if taken:
                left -= taken
                whole, rest = divmod(taken, samples)
                yield samples, whole
                if rest:
                    yield rest, 1

    def work(self, samples: int) -> ModelWork:
        """Return the model at so many samples."""
        if samples not in self._works:
            peak = self.training.peak_activation_bytes
            self._works[samples] = compute_work(self.states, samples, peak)
        return self._works[samples]

    def sharing(self, group: DeviceGroup, micro_batch: int) -> SampleSharing:
        """Return how a group shares a micro-batch of so many samples."""
        key = group, micro_batch
        if key not in self._sharings:
            kinds = self.device_kinds(group), micro_batch
            if kinds not in self._sharings_of_kinds:
                self._sharings_of_kinds[kinds] = self._shared(*kinds)
            self._sharings[key] = self._sharings_of_kinds[kinds]
        return self._sharings[key]

    def stage_cost(self, group: DeviceGroup, start: int, end: int, micro_batch: int) -> StageCost:
        """Return the cost of a stage that holds the states from ``start`` up to ``end``."""
        key = group, start, end, micro_batch
        if key not in self._stages:
            sharing = self.sharing(group, micro_batch)
            work = sharing.work
            speed = sharing.speed
            rate = self.links.all_reduce_cost(group)
            self._stages[key] = StageCost(
                forward_s=(work.forward[end] - work.forward[start]) / speed,
                backward_s=(work.backward[end] - work.backward[start]) / speed,
                data_s=(work.data[end] - work.data[start]) / speed,
                weights_s=(work.weights[end] - work.weights[start]) / speed,
                all_reduce_s=rate.seconds(work.parameters[end] - work.parameters[start]),
                memories=tuple(
                    (
                        self.device_memory(held, start, end, recompute=False),
                        self.device_memory(held, start, end, recompute=True),
                        memory,
                    )
                    for held, memory in sharing.memories
                ),
            )
        return self._stages[key]

    def device_kinds(self, group: DeviceGroup) -> Kinds:
        """Return the kinds of a group's devices."""
        if group not in self._kinds:
            found: Counter[DeviceKind] = Counter()
            machines = zip(self.cluster.machines, group.first, group.last, strict=True)
            for machine, first, last in machines:
                if last > first:
                    found.update(machine.devices[first:last])
            self._kinds[group] = tuple(found.items())
        return self._kinds[group]

    def _shared(self, kinds: Kinds, micro_batch: int) -> SampleSharing:
        samples = share_samples([(kind.speed, count) for kind, count in kinds], micro_batch)
        given = [(kind, self.work(part)) for (kind, _), part in zip(kinds, samples, strict=True)]
        slowest, work = max(given, key=lambda pair: pair[1].total / pair[0].speed)
        held = tuple(
            (work, kind.memory_bytes) for kind, work in given if kind.memory_bytes is not None
        )
        return SampleSharing(work, slowest.speed, held, self.work(max(samples)))

    def device_memory(self, work: ModelWork, start: int, end: int, recompute: bool) -> DeviceMemory:
        """Return what a device needs that holds the states from ``start`` up to ``end``."""
        whole = work.kept[end] - work.kept[start]
        fixed = self.training.optimizer_memory_scaling * float(
            work.parameters[end] - work.parameters[start]
        )
        once = max(work.working[start:end])
        if recompute:
            return DeviceMemory(fixed, work.crossing[start], once + whole)
        return DeviceMemory(fixed, whole, once)

    def missing_bytes(
        self, sharing: SampleSharing, start: int, end: int, kept: int, recompute: bool
    ) -> float:
        """Return how many bytes a stage's devices have too few; below 0 what is left."""
        return max(
            (
                self.device_memory(work, start, end, recompute).peak(kept) - memory
                for work, memory in sharing.memories
            ),
            default=-math.inf,
        )

    def crossing_bytes(self, cut: int, micro_batch: int) -> float:
        """Return the bytes of a micro-batch that cross the cut before a state."""
        return self.work(micro_batch).crossing[cut]

    def passing_bytes(self, start: int, end: int, micro_batch: int) -> float:
        """Return the bytes of a micro-batch that a stage neither makes nor reads, but crosses."""
        return self._scale(micro_batch) * self.states.skips.bytes_past(start, end)

    def skip_routes(self, ends: tuple[int, ...], micro_batch: int) -> dict[tuple[int, int], float]:
        """Return the bytes that can go straight past stages, by their stages, source and target."""
        if ends not in self._ways_past:
            self._ways_past[ends] = self.states.skips.straight_routes(ends)
        scale = self._scale(micro_batch)
        return {way: scale * count for way, count in self._ways_past[ends].items()}

    def _scale(self, micro_batch: int) -> float:
        return micro_batch / self.states.profile.batch_size

    def overhead_s(self, source: DeviceGroup, target: DeviceGroup, count: float) -> float:
        """Return the seconds of both passes of two stages that a message between them takes.

        Args:
            source: The devices of one stage.
            target: Those of the other.
            count: Bytes of the message; none for nothing.
        """
        if not self._overheads or not count:
            return 0.0
        return self.links.overhead_cost(source, target).seconds(count)
