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
class HpgoModel:
    """A model as arrays over its ``L`` states, for the whole batch on one device.

    Attributes:
        compute_s: Seconds of both passes up to each state.
        parameters_so_far: Bytes of parameters up to each state.
        crossing_bytes: Bytes that cross a cut after each state.
        can_precede: ``can_precede[j, k]``: whether state ``k`` can end the stage before one that
            ends with ``j``; ``(L, L)``.
    """

    compute_s: Floats
    parameters_so_far: Floats
    crossing_bytes: Floats
    can_precede: NDArray[np.bool_]
    training: Training

    @property
    def total_s(self) -> float:
        """Seconds of the whole model."""
        return float(self.compute_s[-1])

    @property
    def last(self) -> int:
        """The last state."""
        return len(self.compute_s) - 1

    def count_micro_batches(self, pipelines: int) -> int:
        """Return the micro-batches of each of some pipelines, rounded down."""
        return self.training.global_batch_size // pipelines // self.training.micro_batch_size

    def sum_parameter_bytes(self, start: int, end: int) -> float:
        """Return the bytes of parameters from state `start` to `end`, inclusive."""
        before = self.parameters_so_far[start - 1] if start else 0.0
        return float(self.parameters_so_far[end] - before)


def build_hpgo_model(states: States, training: Training) -> HpgoModel:
    """Return a model at the global batch size, by linear scaling."""
    import numpy as np

    batch_ratio = training.global_batch_size / states.profile.batch_size
    mask_bytes = (len(states) + 7) // 8
    packed_masks = np.frombuffer(
        b"".join(mask.to_bytes(mask_bytes, "little") for mask in states.ancestors), dtype=np.uint8
    ).reshape(len(states), mask_bytes)
    can_precede = np.unpackbits(packed_masks, axis=1, count=len(states), bitorder="little")
    return HpgoModel(
        compute_s=(np.array(states.forward_s) + np.array(states.backward_s)) * batch_ratio,
        parameters_so_far=np.array(states.parameter_bytes),
        crossing_bytes=np.array(states.crossing_bytes) * batch_ratio,
        can_precede=can_precede.astype(np.bool_),
        training=training,
    )


@dataclass(frozen=True, slots=True)
class HpgoCluster:
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

    def compute_all_reduce_s_per_byte(self, group: DeviceGroup) -> float:
        """Return the seconds in which a group sums one byte per device."""
        counts = group.devices_per_machine
        devices = sum(counts)
        if devices == 1:
            return 0.0
        bytes_sent = 2.0 * (devices - 1) / devices
        if max(counts) < devices:
            return bytes_sent / self.collective
        return bytes_sent / self.within / (devices // 2)

    def compute_transfer_s_per_byte(self, source: DeviceGroup, target: DeviceGroup) -> float:
        """Return the seconds in which a byte, split over a group, reaches the next one."""
        target_counts = target.devices_per_machine
        source_counts = source.devices_per_machine
        if max(target_counts) < sum(target_counts):
            return 1.0 / self.collective
        sources = sum(source_counts)
        remote_sources = sources - source_counts[target_counts.index(max(target_counts))]
        return remote_sources / sources / self.between if remote_sources else 1.0 / self.within


def build_hpgo_cluster(cluster: Cluster) -> HpgoCluster:
    """Return HPGO's model of a cluster.

    Raises:
        PlannerError: Its devices or links are of several kinds, which HPGO does not support.
    """
    if len(set(cluster.kinds)) > 1:
        raise _make_several_kinds_error(cluster, "devices")
    inner_links = {machine.link for machine in cluster.machines if machine.link is not None}
    machine_count = len(cluster.machines)
    outer_links = {cluster.find_link(a, b) for a in range(machine_count) for b in range(a)}
    inner_link = _require_single_kind(cluster, inner_links)
    outer_link = _require_single_kind(cluster, outer_links)
    # Without links of one sort, no message needs them, so the other sort's values are used.
    inner_link, outer_link = inner_link or outer_link, outer_link or inner_link
    if inner_link is None or outer_link is None:
        return HpgoCluster(cluster.sizes, 1.0, 1.0, 1.0)  # one device sends no messages
    return HpgoCluster(
        cluster.sizes, inner_link.bandwidth, outer_link.bandwidth, outer_link.all_reduce_bandwidth
    )


def _require_single_kind(cluster: Cluster, links: set[Link]) -> Link | None:
    if len(links) > 1:
        raise _make_several_kinds_error(cluster, "links")
    return next(iter(links), None)


def _make_several_kinds_error(cluster: Cluster, sort: str) -> PlannerError:
    return PlannerError(
        f"the cluster {cluster.name} has {sort} of several kinds, which mode hpgo cannot tell"
        " apart; use mode best"
    )


@dataclass(frozen=True, slots=True)
class HpgoCandidate:
    """A plan in HPGO's terms.

    Attributes:
        cuts: The last state of each stage, rising; the last one is the model's last state.
        groups: The devices of each stage.
        pipelines: The number of pipelines side by side.
        block_s: Seconds of the slowest stage or message for the whole batch.
    """

    cuts: tuple[int, ...]
    groups: tuple[DeviceGroup, ...]
    pipelines: int
    block_s: float


def estimate_hpgo_step(
    model: HpgoModel, hpgo_cluster: HpgoCluster, candidate: HpgoCandidate
) -> float:
    """Return the seconds of a step by HPGO's ``sync_pipeline_speedup_analytical``.

    ``b (M - 1) + T / (r M) + sum of transfers + max(0, all-reduce of stage i - i b)``, with
    ``M`` micro-batches in each of ``r`` pipelines and ``b`` the block of one micro-batch. Like in
    HPGO, the fill term ignores that devices share the work of a stage, and a message counts once.
    The all-reduce of all stages except the last includes the first state of the next one.

    Returns:
        Seconds; infinite if a pipeline has no micro-batch.
    """
    micro_batches = model.count_micro_batches(candidate.pipelines)
    pipelines = candidate.pipelines
    if micro_batches == 0:
        return float("inf")
    block_s = candidate.block_s / micro_batches
    step_s = block_s * (micro_batches - 1) + model.total_s / pipelines / micro_batches
    for cut, source, target in zip(
        candidate.cuts, candidate.groups, candidate.groups[1:], strict=False
    ):
        sent_bytes = float(model.crossing_bytes[cut]) / pipelines / micro_batches
        step_s += sent_bytes * hpgo_cluster.compute_transfer_s_per_byte(source, target)
    starts = [0, *(cut + 1 for cut in candidate.cuts)]
    exposed_s = 0.0
    for stage, (cut, group) in enumerate(zip(candidate.cuts, candidate.groups, strict=True)):
        parameter_bytes = model.sum_parameter_bytes(starts[stage], min(cut + 1, model.last))
        exposed_s = max(
            exposed_s,
            hpgo_cluster.compute_all_reduce_s_per_byte(group) * parameter_bytes - stage * block_s,
        )
    return step_s + exposed_s
