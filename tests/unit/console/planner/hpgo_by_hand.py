"""HPGO's search in plain Python on sets of device numbers: slow, and as the facts tell it."""

from __future__ import annotations

from itertools import product

WITHIN = 25e9
BETWEEN = 1e9
COLLECTIVE = 3e9


class Reference:
    """The search over a chain: cumulative ms, parameter bytes and crossing bytes of a batch."""

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

    def span(self, start, end, sums):
        return sums[end] - (sums[start - 1] if start else 0.0)

    def crosses(self, group):
        return not any({min(group), max(group)} <= machine for machine in self.machines)

    def all_reduce(self, group, size):
        count = len(group)
        if count == 1:
            return 0.0
        share = 2.0 * size * (count - 1) / count
        return share / COLLECTIVE if self.crosses(group) else share / WITHIN / (count // 2)

    def transfer(self, source, target, size):
        if self.crosses(target):
            return size / COLLECTIVE
        far = sum(self.crosses(target | {device}) for device in source)
        return size * far / len(source) / BETWEEN if far else size / WITHIN

    def groups(self, used, need):
        """Fresh, append and scatter first; each group once."""
        found = []
        for policy in ("fresh", "append"):
            taken = []
            for machine in self.machines:
                if bool(machine & used) == (policy == "append"):
                    taken += sorted(machine - used)[: need - len(taken)]
            found += [frozenset(taken)] if len(taken) == need else []
        rooms = [sorted(machine - used) for machine in self.machines]
        taken = []
        while len(taken) < need:
            for room in rooms:
                if room and len(taken) < need:
                    taken.append(room.pop(0))
        return list(dict.fromkeys([*found, frozenset(taken)]))

    def several(self, used, need, times):
        found = [(used, frozenset())]
        for _ in range(times):
            found = [
                (before | group, taken | group)
                for before, taken in found
                for group in self.groups(before, need)
            ]
        return list(dict.fromkeys(taken for _, taken in found))

    def dealt(self, workers, straight):
        """Return the plan of one pipeline shape, as (block, stages, pipelines); None if none."""
        pipelines = self.devices // workers
        cells = {}  # (last state, workers): {used: (block, stages)}
        for at, count in product(range(self.last + 1), range(1, 2 if straight else workers + 1)):
            group = frozenset(range(count * pipelines))
            block = self.compute[at] / (count * pipelines)
            cells[at, count] = {group: (block, [(0, at, group)])}
        best = None
        if not straight:
            best = next(iter(cells[self.last, workers].values()))
        if workers * pipelines == self.devices:
            for count, at in product(range(2, workers + 1), range(1, self.last + 1)):
                self._relax(cells, at, count, pipelines, straight)
            ends = cells.get((self.last, workers), {}).values()
            best = min([*ends, *([best] if best else [])], key=lambda cell: cell[0], default=None)
        return None if best is None else (*best, pipelines)

    def _relax(self, cells, at, count, pipelines, straight):
        here = cells.setdefault((at, count), {})
        for cut, more in product(range(at), range(1, 2 if straight else count)):
            for used, (before, stages) in cells.get((cut, count - more), {}).items():
                for group in self.several(used, more, pipelines):
                    block = max(
                        before,
                        self.span(cut + 1, at, self.compute) / (more * pipelines),
                        self.transfer(stages[-1][2], group, 2.0 * self.crossing[cut]),
                    )
                    after = used | group
                    if after not in here or block < here[after][0]:
                        here[after] = block, [*stages, (cut + 1, at, group)]

    def halved(self):
        """Yield every split in two."""
        for cut, first in product(range(self.last), range(1, self.devices)):
            for group in self.groups(frozenset(), first):
                for rest in self.groups(group, self.devices - first):
                    block = max(
                        self.compute[cut] / first,
                        self.span(cut + 1, self.last, self.compute) / len(rest),
                        self.transfer(group, rest, self.crossing[cut]),
                    )
                    yield block, [(0, cut, group), (cut + 1, self.last, rest)], 1

    def step(self, block, stages, pipelines):
        count = self.batch // pipelines // self.micro
        if not count:
            return float("inf")
        length = block / count * (count - 1) + self.total / (pipelines * count)
        late = 0.0
        for at, (start, end, group) in enumerate(stages):
            held = self.span(start, min(end + 1, self.last), self.parameters)
            late = max(late, self.all_reduce(group, held) - at * block / count)
            if end < self.last:
                size = self.crossing[end] / (pipelines * count)
                length += self.transfer(group, stages[at + 1][2], size)
        return length + late

    def speedup(self):
        """Return the best speed-up over all that HPGO scores."""
        found = [self.dealt(workers, straight=False) for workers in range(2, self.devices + 1)]
        if self.devices > 2 and self.devices % 2 == 0:
            found.append(self.dealt(2, straight=True))
        found.append(self.dealt(self.devices, straight=True))
        found += self.halved()
        return max(self.total / self.step(*each) for each in found if each is not None)
