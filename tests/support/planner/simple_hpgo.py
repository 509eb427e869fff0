"""HPGO's search in plain and slow Python, on sets of devices.

Source: HPGO, src/layerwise/orchestration/orchestrate_async.rs (``orchestrate``).
"""

from __future__ import annotations

from itertools import product

WITHIN = 25e9
BETWEEN = 1e9
COLLECTIVE = 3e9


class ReferenceSearch:
    """A search over a chain: cumulative ms, parameter and crossing bytes per batch."""

    def __init__(self, compute, parameters, crossing, ends, batch, micro=1):
        self.compute = compute
        self.parameters = parameters
        self.crossing = crossing
        self.ends = ends
        self.batch = batch
        self.micro = micro
        self.machines = [set(range(a, b)) for a, b in zip([0, *ends], ends, strict=False)]
        self.devices = ends[-1]
        self.total = compute[-1]
        self.last = len(compute) - 1

    def sum_span(self, start, end, sums):
        return sums[end] - (sums[start - 1] if start else 0.0)

    def spans_machines(self, group):
        return not any({min(group), max(group)} <= machine for machine in self.machines)

    def compute_all_reduce(self, group, size):
        count = len(group)
        if count == 1:
            return 0.0
        share = 2.0 * size * (count - 1) / count
        return share / COLLECTIVE if self.spans_machines(group) else share / WITHIN / (count // 2)

    def compute_transfer(self, source, target, size):
        if self.spans_machines(target):
            return size / COLLECTIVE
        far = sum(self.spans_machines(target | {device}) for device in source)
        return size * far / len(source) / BETWEEN if far else size / WITHIN

    def list_group_shapes(self, used, need):
        """Return the groups by the policies fresh, append and scatter, each group once."""
        groups = []
        for policy in ("fresh", "append"):
            devices = []
            for machine in self.machines:
                if bool(machine & used) == (policy == "append"):
                    devices += sorted(machine - used)[: need - len(devices)]
            groups += [frozenset(devices)] if len(devices) == need else []
        free_devices = [sorted(machine - used) for machine in self.machines]
        devices = []
        while len(devices) < need:
            for free in free_devices:
                if free and len(devices) < need:
                    devices.append(free.pop(0))
        return list(dict.fromkeys([*groups, frozenset(devices)]))

    def list_groups(self, used, need, times):
        states = [(used, frozenset())]
        for _ in range(times):
            states = [
                (used_before | group, devices | group)
                for used_before, devices in states
                for group in self.list_group_shapes(used_before, need)
            ]
        return list(dict.fromkeys(devices for _, devices in states))

    def find_pipeline(self, workers, straight):
        """Return the (block, stages, pipelines) of one pipeline shape, or None."""
        pipelines = self.devices // workers
        cells = {}  # (last state, workers): {used: (block, stages)}
        for end, count in product(range(self.last + 1), range(1, 2 if straight else workers + 1)):
            group = frozenset(range(count * pipelines))
            block = self.compute[end] / (count * pipelines)
            cells[end, count] = {group: (block, [(0, end, group)])}
        best = None
        if not straight:
            best = next(iter(cells[self.last, workers].values()))
        if workers * pipelines == self.devices:
            for count, end in product(range(2, workers + 1), range(1, self.last + 1)):
                self._relax(cells, end, count, pipelines, straight)
            ends = cells.get((self.last, workers), {}).values()
            best = min([*ends, *([best] if best else [])], key=lambda cell: cell[0], default=None)
        return None if best is None else (*best, pipelines)

    def _relax(self, cells, end, count, pipelines, straight):
        cell = cells.setdefault((end, count), {})
        for cut, more in product(range(end), range(1, 2 if straight else count)):
            for used, (before, stages) in cells.get((cut, count - more), {}).items():
                for group in self.list_groups(used, more, pipelines):
                    block = max(
                        before,
                        self.sum_span(cut + 1, end, self.compute) / (more * pipelines),
                        self.compute_transfer(stages[-1][2], group, 2.0 * self.crossing[cut]),
                    )
                    after = used | group
                    if after not in cell or block < cell[after][0]:
                        cell[after] = block, [*stages, (cut + 1, end, group)]

    def list_halves(self):
        """Yield every split in two."""
        for cut, first in product(range(self.last), range(1, self.devices)):
            for group in self.list_group_shapes(frozenset(), first):
                for second in self.list_group_shapes(group, self.devices - first):
                    block = max(
                        self.compute[cut] / first,
                        self.sum_span(cut + 1, self.last, self.compute) / len(second),
                        self.compute_transfer(group, second, self.crossing[cut]),
                    )
                    yield block, [(0, cut, group), (cut + 1, self.last, second)], 1

    def estimate_step(self, block, stages, pipelines):
        count = self.batch // pipelines // self.micro
        if not count:
            return float("inf")
        length = block / count * (count - 1) + self.total / (pipelines * count)
        exposed = 0.0
        for index, (start, end, group) in enumerate(stages):
            size_bytes = self.sum_span(start, min(end + 1, self.last), self.parameters)
            exposed = max(
                exposed, self.compute_all_reduce(group, size_bytes) - index * block / count
            )
            if end < self.last:
                size = self.crossing[end] / (pipelines * count)
                length += self.compute_transfer(group, stages[index + 1][2], size)
        return length + exposed

    def find_best_speedup(self):
        """Return the best speed-up over all that HPGO scores."""
        plans = [
            self.find_pipeline(workers, straight=False) for workers in range(2, self.devices + 1)
        ]
        if self.devices > 2 and self.devices % 2 == 0:
            plans.append(self.find_pipeline(2, straight=True))
        plans.append(self.find_pipeline(self.devices, straight=True))
        plans += self.list_halves()
        return max(
            self.total / self.estimate_step(*candidate)
            for candidate in plans
            if candidate is not None
        )
