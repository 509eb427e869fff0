"""HPGO's costs of a model for a whole batch, and of messages between devices.

Source: HPGO, src/layerwise/parallelism (data_parallel.rs, split_concat.rs, sync_pipeline.rs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spbench.planner.cluster.machines import Cluster, Link
from spbench.planner.cluster.placement import Counts, DeviceGroup
from spbench.planner.errors import PlannerError
from spbench.planner.plans import Training
from spbench.planner.profile.states import States

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HpgoWork:
    """A model as arrays over its ``L`` states, for the whole batch on one device.

    Attributes:
        compute: Seconds of both passes up to each state.
        parameters: Bytes of parameters up to each state.
        crossing: Bytes that cross a cut after each state.
        before: ``before[j, k]``: whether state ``k`` can end the stage before one that ends
            with ``j``; ``(L, L)``.
    """

    compute: Floats
    parameters: Floats
    crossing: Floats
    before: NDArray[np.bool_]
    training: Training

    @property
    def total(self) -> float:
        """Seconds of the whole model."""
        return float(self.compute[-1])

    @property
    def last(self) -> int:
        """The last state."""
        return len(self.compute) - 1

    def micro_batches(self, pipelines: int) -> int:
        """Return the micro-batches of each of some pipelines, rounded down."""
        return self.training.global_batch_size // pipelines // self.training.micro_batch_size

    def parameter_bytes(self, start: int, end: int) -> float:
        """Return the bytes of parameters from state `start` to `end`, inclusive."""
        before = self.parameters[start - 1] if start else 0.0
        return float(self.parameters[end] - before)


def build_hpgo_work(states: States, training: Training) -> HpgoWork:
    """Return a model at the global batch size, by linear scaling."""
    import numpy as np

    factor = training.global_batch_size / states.profile.batch_size
    width = (len(states) + 7) // 8
    packed = np.frombuffer(
        b"".join(mask.to_bytes(width, "little") for mask in states.ancestors), dtype=np.uint8
    ).reshape(len(states), width)
    before = np.unpackbits(packed, axis=1, count=len(states), bitorder="little")
    return HpgoWork(
        compute=(np.array(states.forward_s) + np.array(states.backward_s)) * factor,
        parameters=np.array(states.parameter_bytes),
        crossing=np.array(states.crossing_bytes) * factor,
        before=before.astype(np.bool_),
        training=training,
    )


@dataclass(frozen=True, slots=True)
class HpgoLinks:
    """HPGO's model of a cluster: one bandwidth within machines and two between them.

    Attributes:
        sizes: Devices of each machine.
        within: Bytes per second between devices of one machine.
        between: Bytes per second from machine to machine, into one machine.
        collective: Bytes per second in exchanges over several machines.
    """

    sizes: Counts
    within: float
    between: float
    collective: float

    def all_reduce(self, group: DeviceGroup) -> float:
        """Return the seconds in which a group sums one byte per device."""
        counts = group.devices_per_machine
        count = sum(counts)
        if count == 1:
            return 0.0
        share = 2.0 * (count - 1) / count
        if max(counts) < count:
            return share / self.collective
        return share / self.within / (count // 2)

    def transfer(self, source: DeviceGroup, target: DeviceGroup) -> float:
        """Return the seconds in which a byte, split over a group, reaches the next one."""
        target_counts = target.devices_per_machine
        source_counts = source.devices_per_machine
        if max(target_counts) < sum(target_counts):
            return 1.0 / self.collective
        count = sum(source_counts)
        remote = count - source_counts[target_counts.index(max(target_counts))]
        return remote / count / self.between if remote else 1.0 / self.within


def build_hpgo_links(cluster: Cluster) -> HpgoLinks:
    """Return HPGO's model of a cluster.

    Raises:
        PlannerError: Its devices or links are of several kinds, which HPGO does not support.
    """
    if len(set(cluster.kinds)) > 1:
        raise _several_kinds_error(cluster, "devices")
    inner_links = {machine.link for machine in cluster.machines if machine.link is not None}
    count = len(cluster.machines)
    outer_links = {cluster.find_machine_link(a, b) for a in range(count) for b in range(a)}
    within = _require_single_kind(cluster, inner_links)
    between = _require_single_kind(cluster, outer_links)
    # Without links of one sort, no message needs them, so the other sort's values are used.
    within, between = within or between, between or within
    if within is None or between is None:
        return HpgoLinks(cluster.sizes, 1.0, 1.0, 1.0)  # one device sends no messages
    return HpgoLinks(
        cluster.sizes, within.bandwidth, between.bandwidth, between.all_reduce_bandwidth
    )


def _require_single_kind(cluster: Cluster, links: set[Link]) -> Link | None:
    if len(links) > 1:
        raise _several_kinds_error(cluster, "links")
    return next(iter(links), None)


def _several_kinds_error(cluster: Cluster, parts: str) -> PlannerError:
    return PlannerError(
        f"the cluster {cluster.name} has {parts} of several kinds, which mode hpgo cannot tell"
        " apart; use mode best"
    )


@dataclass(frozen=True, slots=True)
class HpgoCandidate:
    """A plan in HPGO's terms.

    Attributes:
        cuts: The last state of each stage, rising; the last one is the model's last state.
        groups: The devices of each stage.
        pipelines: The number of pipelines side by side.
        block: Seconds of the slowest stage or message for the whole batch.
    """

    cuts: tuple[int, ...]
    groups: tuple[DeviceGroup, ...]
    pipelines: int
    block: float


def estimate_hpgo_step(work: HpgoWork, links: HpgoLinks, candidate: HpgoCandidate) -> float:
    """Return the seconds of a step by HPGO's ``sync_pipeline_speedup_analytical``.

    ``b (M - 1) + T / (r M) + sum of transfers + max(0, all-reduce of stage i - i b)``, with
    ``M`` micro-batches in each of ``r`` pipelines and ``b`` the block of one micro-batch. Like in
    HPGO, the fill term ignores replicas within a pipeline, a message counts once, and the
    all-reduce of all stages except the last includes the first state of the next one.

    Returns:
        Seconds; infinite if a pipeline has no micro-batch.
    """
    count = work.micro_batches(candidate.pipelines)
    pipelines = candidate.pipelines
    if count == 0:
        return float("inf")
    block = candidate.block / count
    length = block * (count - 1) + work.total / pipelines / count
    for cut, source, target in zip(
        candidate.cuts, candidate.groups, candidate.groups[1:], strict=False
    ):
        sent_bytes = float(work.crossing[cut]) / pipelines / count
        length += sent_bytes * links.transfer(source, target)
    starts = [0, *(cut + 1 for cut in candidate.cuts)]
    tail = 0.0
    for stage, (cut, group) in enumerate(zip(candidate.cuts, candidate.groups, strict=True)):
        parameter_bytes = work.parameter_bytes(starts[stage], min(cut + 1, work.last))
        tail = max(tail, links.all_reduce(group) * parameter_bytes - stage * block)
    return length + tail
