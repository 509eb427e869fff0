"""Brute-force search over every plan, with independent costs and simulation."""

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import ceil, inf

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import Placements
from spbench.planner.profile.states import States


@dataclass
class BruteForceSearch:
    """Every plan of a chain profile on a cluster with one kind of device."""

    states: States
    cluster: Cluster
    batch: int
    scaling: float

    def find_best_step(self, micro_batch=None):
        """Return the shortest step time of all plans."""
        fastest = inf
        states = len(self.states)
        sizes = [micro_batch] if micro_batch else range(1, self.batch + 1)
        for groups in self.list_placements(Placements(self.cluster.sizes)):
            for rounds in range(1, (states // len(groups) if len(groups) > 1 else 1) + 1):
                for cuts in combinations(range(1, states), rounds * len(groups) - 1):
                    spans = list(zip((0, *cuts), (*cuts, states), groups * rounds, strict=True))
                    for size in sizes:
                        if self.batch % size == 0:
                            find_fastest = (
                                self.find_stage_step if rounds == 1 else self.find_interleaved_step
                            )
                            fastest = min(fastest, find_fastest(spans, size, fastest))
        return fastest

    def list_placements(self, placements, used=None, left=None):
        used = used or placements.empty
        left = len(self.states) if left is None else left
        free = sum(placements.sizes) - sum(used)
        if left:
            for need in range(1, free + 1):
                for used_after in placements.place_by_each_policy(used, need):
                    group = (used, used_after)
                    yield (group,)
                    for more in self.list_placements(placements, used_after, left - 1):
                        yield (group, *more)

    def find_stage_step(self, spans, size, limit):
        count = self.batch // size
        fastest = inf
        for flags in product((False, True), repeat=len(spans)):
            times = [
                self.compute_stage_times(size, flag, *span)
                for span, flag in zip(spans, flags, strict=True)
            ]
            parts = [self.compute_gradient_times(size, *span) for span in spans]
            lower_bound = min(
                max(f + b for f, b, _ in times),
                max(f + sum(part) for (f, _, _), part in zip(times, parts, strict=True)),
            )
            if lower_bound * count >= limit:
                continue
            sends = self.compute_send_times(spans, size)
            for name in ("gpipe", "1f1b", "1f1b-deep", "zb-h1"):
                in_flight_counts = [
                    self.count_in_flight(name, stage, len(spans), count)
                    for stage in range(len(spans))
                ]
                splits_backward = name == "zb-h1"
                if self.stages_fit(spans, size, flags, in_flight_counts) and not (
                    splits_backward and any(flags)
                ):
                    orders = [build_order(in_flight, count) for in_flight in in_flight_counts]
                    if splits_backward:
                        orders = [
                            build_split_order(stage, len(spans), count)
                            for stage in range(len(spans))
                        ]
                    fastest = min(fastest, compute_step(times, sends, orders, count, parts))
        return fastest

    def find_interleaved_step(self, spans, size, limit):
        """Return the shortest step; all or no stages of a device recompute."""
        groups = len({group for *_, group in spans})
        count = self.batch // size
        if count % groups:
            return inf
        sends = self.compute_send_times(spans, size)
        fastest = inf
        for group_flags in product((False, True), repeat=groups):
            flags = group_flags * (len(spans) // groups)
            times = [
                self.compute_stage_times(size, flag, *span)
                for span, flag in zip(spans, flags, strict=True)
            ]
            busy = [sum(f + b for f, b, _ in times[index::groups]) for index in range(groups)]
            if max(busy) * count < limit and all(
                self.device_fits(
                    spans[index::groups], size, group_flags[index], index, groups, count
                )
                for index in range(groups)
            ):
                fastest = min(fastest, compute_interleaved_step(times, sends, groups, count))
        return fastest

    def device_fits(self, spans, size, recomputes, group, groups, count):
        """Return whether the stages of a device fit into its memory."""
        memory = self.cluster.kinds[0].memory_bytes
        if memory is None:
            return True
        states = self.states
        share = self.compute_share(spans[0][2], size)
        held_bytes = []
        transient_bytes = []
        fixed = 0.0
        for start, end, _ in spans:
            activation_bytes = self.sum_range(states.kept_bytes, start, end)
            working = max(layer.working_bytes for layer in states.profile.layers[start:end])
            arriving = states.crossing_bytes[start - 1] if start else 0.0
            held_bytes.append(share * (arriving if recomputes else activation_bytes))
            transient_bytes.append(share * (working + activation_bytes if recomputes else working))
            fixed += self.scaling * self.sum_range(states.parameter_bytes, start, end)
        kept_bytes = peak_bytes = 0.0
        for kind, stage, _ in build_rounds_order(group, groups, len(spans), count):
            kept_bytes += held_bytes[stage // groups] * (1 if kind == "F" else -1)
            peak_bytes = max(peak_bytes, kept_bytes)
        return fixed + peak_bytes + max(transient_bytes) <= memory

    @staticmethod
    def count_in_flight(name, stage, stages, count):
        return min(
            {
                "gpipe": count,
                "1f1b": stages - stage,
                "1f1b-deep": 2 * (stages - stage) - 1,
                "zb-h1": stages,
            }[name],
            count,
        )

    def sum_range(self, sums, start, end):
        return sums[end - 1] - (sums[start - 1] if start else 0.0)

    def compute_share(self, group, size):
        return ceil(size / (sum(group[1]) - sum(group[0]))) / self.states.profile.batch_size

    def stages_fit(self, spans, size, flags, in_flight_counts):
        memory = self.cluster.kinds[0].memory_bytes
        if memory is None:
            return True
        states = self.states
        for (start, end, group), flag, in_flight in zip(
            spans, flags, in_flight_counts, strict=True
        ):
            activation_bytes = self.sum_range(states.kept_bytes, start, end)
            arriving = states.crossing_bytes[start - 1] if start else 0.0
            held_bytes = (
                activation_bytes + in_flight * arriving if flag else in_flight * activation_bytes
            )
            working = max(layer.working_bytes for layer in states.profile.layers[start:end])
            parameters = self.sum_range(states.parameter_bytes, start, end)
            if (
                self.scaling * parameters + self.compute_share(group, size) * (held_bytes + working)
                > memory
            ):
                return False
        return True

    def compute_stage_times(self, size, recompute, start, end, group):
        share = self.compute_share(group, size)
        forward = share * self.sum_range(self.states.forward_s, start, end)
        backward = share * self.sum_range(self.states.backward_s, start, end)
        if end - start == len(self.states):
            reduce = self.compute_exposed_all_reduce(group, backward)
        else:
            reduce = self.compute_all_reduce(
                group, self.sum_range(self.states.parameter_bytes, start, end)
            )
        return forward, backward + (forward if recompute else 0.0), reduce

    def compute_gradient_times(self, size, start, end, group):
        """Return the seconds of the data and the weight gradients as separate tasks."""
        share = self.compute_share(group, size)
        sums = self.states.data_s, self.states.weights_s
        return tuple(share * self.sum_range(cumulative, start, end) for cumulative in sums)

    def compute_all_reduce(self, group, size_bytes):
        counts = [last - first for first, last in zip(*group, strict=True)]
        devices = sum(counts)
        if devices == 1 or not size_bytes:
            return 0.0
        machines = [index for index, used in enumerate(counts) if used]
        links = [self.cluster.find_link(index, index) for index in machines if counts[index] > 1]
        if len(machines) > 1:
            links.append(self.cluster.between)
        rate = min(link.all_reduce_bandwidth for link in links)
        rounds = 2 * (devices - 1)
        return rounds / devices * size_bytes / rate + rounds * max(link.latency_s for link in links)

    def compute_exposed_all_reduce(self, group, backward):
        """Return the all-reduce seconds of a full model that backward does not hide."""
        total_s = self.states.backward_s[-1]
        end_s = 0.0
        for index in reversed(range(len(self.states))):
            ready = (
                backward * self.sum_range(self.states.backward_s, index, len(self.states)) / total_s
            )
            seconds = self.compute_all_reduce(
                group, self.sum_range(self.states.parameter_bytes, index, index + 1)
            )
            end_s = max(end_s, ready) + seconds if seconds else end_s
        plain = self.compute_all_reduce(group, self.states.parameter_bytes[-1])
        return max(min(plain, end_s - backward), 0.0)

    def compute_send_times(self, spans, size):
        """Return the seconds of each message, by the cheaper of the two routes."""
        layers = self.states.profile.layers
        edges = self.states.profile.edges
        scale = size / self.states.profile.batch_size
        forwarded_s = []
        direct_s = []
        saved_s = 0.0
        for source, target in pairwise(spans):
            start, end, _ = target
            alive = {a for a, b in edges if a < start <= b}
            read = {a for a, b in edges if a < start <= b < end}
            crossing, read_bytes = (
                scale * sum(layers[a].activation_bytes for a in outputs)
                for outputs in (alive, read)
            )
            rate, latency = self.compute_rate(source, target)
            forwarded_s.append(latency + crossing * rate if crossing else 0.0)
            direct_s.append(latency + read_bytes * rate if read_bytes else 0.0)
            saved_s += (crossing - read_bytes) * rate
        skips = set()
        for index, layer in enumerate(layers):
            readers = {b for a, b in edges if a == index}
            used = {index, *readers} if layer.activation_bytes else set()
            holders = [
                stage
                for stage, (start, end, _) in enumerate(spans)
                if used & set(range(start, end))
            ]
            skips |= {(a, b) for a, b in pairwise(holders) if b - a > 1}
        extra_latency = sum(self.compute_rate(spans[a], spans[b])[1] for a, b in skips)
        return direct_s if skips and extra_latency <= saved_s else forwarded_s

    def compute_rate(self, source, target):
        """Return seconds per byte and latency; both ends split the batch in device order."""
        source_pieces = self.split_batch(source[2])
        target_pieces = self.split_batch(target[2])
        out = {}
        into = {}
        inner = 0.0
        latency = 0.0
        for a, b in product(source_pieces, target_pieces):
            part = min(a[2], b[2]) - max(a[1], b[1])
            if part < 1e-9:
                continue
            link = self.cluster.find_link(a[0], b[0])
            latency = max(latency, link.latency_s)
            if a[0] == b[0]:
                inner = max(
                    inner,
                    min(
                        part,
                        max(
                            self.compute_device_share(source[2]),
                            self.compute_device_share(target[2]),
                        ),
                    )
                    / link.bandwidth,
                )
            else:
                out[a[0]] = out.get(a[0], 0.0) + part / link.bandwidth
                into[b[0]] = into.get(b[0], 0.0) + part / link.bandwidth
        return max(inner, *out.values(), *into.values(), 0.0), latency

    @staticmethod
    def compute_device_share(group):
        return 1 / (sum(group[1]) - sum(group[0]))

    def split_batch(self, group):
        start = 0.0
        pieces = []
        for machine, (first, last) in enumerate(zip(*group, strict=True)):
            part = (last - first) * self.compute_device_share(group)
            if part:
                pieces.append((machine, start, start + part))
            start += part
        return pieces


def compute_step(times, sends, orders, count, parts=None):
    """Return the step time: recompute the start of each event until nothing changes.

    Parts are the seconds of the data and the weight gradients if these are separate tasks;
    the default is half of the backward pass each.
    """
    parts = parts or [(backward / 2, backward / 2) for _, backward, _ in times]
    stages = len(times)
    forward = [[0.0] * count for _ in times]
    backward = [[0.0] * count for _ in times]
    forward_arrival = [[0.0] * count for _ in times]
    backward_arrival = [[0.0] * count for _ in times]
    split = [any(kind == "W" for kind, _ in passes) for passes in orders]
    last = [0.0] * stages
    changed = True
    while changed:
        changed = False
        for stage in [*range(stages), *reversed(range(stages))]:
            free = 0.0
            for kind, k in orders[stage]:
                if kind == "W":
                    free += parts[stage][1]
                    continue
                if kind == "F":
                    ready = forward_arrival[stage - 1][k] if stage else 0.0
                    ends = forward
                    seconds = times[stage][0]
                else:
                    ready = (
                        backward_arrival[stage + 1][k] if stage + 1 < stages else forward[stage][k]
                    )
                    ends = backward
                    seconds = parts[stage][0] if split[stage] else times[stage][1]
                free = max(free, ready) + seconds
                changed |= ends[stage][k] != free
                ends[stage][k] = free
            last[stage] = free
            for ends, arrive, link in (
                (forward, forward_arrival, stage if stage + 1 < stages else None),
                (backward, backward_arrival, stage - 1 if stage else None),
            ):
                if link is not None:
                    free = 0.0
                    for k in range(count):
                        free = max(free, ends[stage][k]) + sends[link]
                        changed |= arrive[stage][k] != free
                        arrive[stage][k] = free
    return max(end + reduce for end, (_, _, reduce) in zip(last, times, strict=True))


def build_order(in_flight, count):
    """Return the passes of a stage: up to ``in_flight`` forwards, then alternating."""
    passes = [("F", k) for k in range(min(in_flight, count))]
    for k in range(count):
        passes.append(("B", k))
        if k + in_flight < count:
            passes.append(("F", k + in_flight))
    return passes


def build_split_order(stage, stages, count):
    """Return the tasks of a stage of zb-h1.

    Weight gradients (W) lag by the number of earlier stages.

    When no forward pass is left, each data gradient is followed by a weight gradient.
    """
    ahead = min(stages - 1 - stage, count)
    tasks = [("F", k) for k in range(ahead)]
    done = 0
    for k in range(count):
        forwards_left = ahead + k < count
        tasks += [("F", ahead + k)] if forwards_left else []
        tasks.append(("B", k))
        if k - done >= (stage if forwards_left else 0):
            tasks.append(("W", done))
            done += 1
    return tasks + [("W", k) for k in range(done, count)]


def build_rounds_order(group, groups, rounds, count):
    """Return the work of a group with several stages, in rounds of ``groups`` batches."""
    passes = [
        (k // groups, turn, k % groups, turn * groups + group, k)
        for turn in range(rounds)
        for k in range(count)
    ]
    forward = [("F", stage, k) for *_, stage, k in sorted(passes)]
    last = sorted(passes, key=lambda work: (work[0], -work[1], work[2]))
    backward = [("B", stage, k) for *_, stage, k in last]
    sequence = []
    for index, task in enumerate(forward):
        sequence.append(task)
        if index >= 2 * (groups - 1 - group) + (rounds - 1) * groups:
            sequence.append(backward.pop(0))
    return sequence + backward


def compute_interleaved_step(times, sends, groups, count):
    """Return the interleaved step time; two groups share one link per direction."""
    stages = len(times)
    orders = [build_rounds_order(group, groups, stages // groups, count) for group in range(groups)]
    arrivals = {}
    ends = [0.0] * groups
    changed = True
    while changed:
        changed = False
        for group, sequence in enumerate(orders):
            free = 0.0
            links = {}
            for kind, stage, k in sequence:
                forward = kind == "F"
                free = (
                    max(free, arrivals.get((kind, stage, k), 0.0))
                    + times[stage][0 if forward else 1]
                )
                target = stage + 1 if forward else stage - 1
                if target == stages:
                    arrival = free
                    key = ("B", stage, k)
                elif target < 0:
                    continue
                else:
                    link = target % groups
                    arrival = max(free, links.get(link, 0.0)) + sends[min(stage, target)]
                    links[link] = arrival
                    key = kind, target, k
                changed |= arrivals.get(key) != arrival
                arrivals[key] = arrival
            ends[group] = free
    return max(
        end + sum(reduce for *_, reduce in times[group::groups]) for group, end in enumerate(ends)
    )
