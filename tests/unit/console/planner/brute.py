"""The best plan by trying every one, with costs and simulation of its own."""

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import ceil, inf

from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.placement import Placements
from spbench.planner.profile.states import States


@dataclass
class Brute:
    """Any plan of a chain profile on a cluster with one kind of device."""

    states: States
    cluster: Cluster
    batch: int
    scaling: float

    def best(self, micro_batch=None):
        """The least step time of all plans."""
        found = inf
        states = len(self.states)
        sizes = [micro_batch] if micro_batch else range(1, self.batch + 1)
        for groups in self.placings(Placements(self.cluster.sizes)):
            for rounds in range(1, (states // len(groups) if len(groups) > 1 else 1) + 1):
                for cuts in combinations(range(1, states), rounds * len(groups) - 1):
                    spans = list(zip((0, *cuts), (*cuts, states), groups * rounds, strict=True))
                    for size in sizes:
                        if self.batch % size == 0:
                            known = self.of_shape if rounds == 1 else self.of_rounds
                            found = min(found, known(spans, size, found))
        return found

    def placings(self, placements, used=None, left=None):
        used = used or placements.empty
        left = len(self.states) if left is None else left
        free = sum(placements.sizes) - sum(used)
        if left:
            for need in range(1, free + 1):
                for after in placements.place_by_each_policy(used, need):
                    group = (used, after)
                    yield (group,)
                    for more in self.placings(placements, after, left - 1):
                        yield (group, *more)

    def of_shape(self, spans, size, known):
        count = self.batch // size
        found = inf
        for again in product((False, True), repeat=len(spans)):
            times = [self.stage(size, flag, *span) for span, flag in zip(spans, again, strict=True)]
            parts = [self.parts(size, *span) for span in spans]
            least = min(
                max(f + b for f, b, _ in times),
                max(f + sum(each) for (f, _, _), each in zip(times, parts, strict=True)),
            )
            if least * count >= known:
                continue
            sends = self.sends(spans, size)
            for name in ("gpipe", "1f1b", "1f1b-deep", "zb-h1"):
                flight = [self.flight(name, at, len(spans), count) for at in range(len(spans))]
                apart = name == "zb-h1"
                if self.fits(spans, size, again, flight) and not (apart and any(again)):
                    known_orders = [order(kept, count) for kept in flight]
                    if apart:
                        known_orders = [
                            split_order(at, len(spans), count) for at in range(len(spans))
                        ]
                    found = min(found, run(times, sends, known_orders, count, parts))
        return found

    def of_rounds(self, spans, size, known):
        """Stages of a group are those with the same devices; they recompute all or none."""
        groups = len({group for *_, group in spans})
        count = self.batch // size
        if count % groups:
            return inf
        sends = self.sends(spans, size)
        found = inf
        for again in product((False, True), repeat=groups):
            flags = again * (len(spans) // groups)
            times = [self.stage(size, flag, *span) for span, flag in zip(spans, flags, strict=True)]
            busy = [sum(f + b for f, b, _ in times[at::groups]) for at in range(groups)]
            if max(busy) * count < known and all(
                self.group_fits(spans[at::groups], size, again[at], (at, groups, count))
                for at in range(groups)
            ):
                found = min(found, run_rounds(times, sends, groups, count))
        return found

    def group_fits(self, spans, size, flag, place):
        memory = self.cluster.kinds[0].memory_bytes
        if memory is None:
            return True
        states = self.states
        share = self.share(spans[0][2], size)
        held = []
        once = []
        fixed = 0.0
        for start, end, _ in spans:
            whole = self.part(states.kept_bytes, start, end)
            working = max(layer.working_bytes for layer in states.profile.layers[start:end])
            arriving = states.crossing_bytes[start - 1] if start else 0.0
            held.append(share * (arriving if flag else whole))
            once.append(share * (working + whole if flag else working))
            fixed += self.scaling * self.part(states.parameter_bytes, start, end)
        at, groups, count = place
        kept = most = 0.0
        for kind, stage, _ in rounds_order(at, groups, len(spans), count):
            kept += held[stage // groups] * (1 if kind == "F" else -1)
            most = max(most, kept)
        return fixed + most + max(once) <= memory

    @staticmethod
    def flight(name, stage, stages, count):
        return min(
            {
                "gpipe": count,
                "1f1b": stages - stage,
                "1f1b-deep": 2 * (stages - stage) - 1,
                "zb-h1": stages,
            }[name],
            count,
        )

    def part(self, sums, start, end):
        return sums[end - 1] - (sums[start - 1] if start else 0.0)

    def share(self, group, size):
        return ceil(size / (sum(group[1]) - sum(group[0]))) / self.states.profile.batch_size

    def fits(self, spans, size, again, flight):
        memory = self.cluster.kinds[0].memory_bytes
        if memory is None:
            return True
        states = self.states
        for (start, end, group), flag, kept in zip(spans, again, flight, strict=True):
            whole = self.part(states.kept_bytes, start, end)
            arriving = states.crossing_bytes[start - 1] if start else 0.0
            held = whole + kept * arriving if flag else kept * whole
            working = max(layer.working_bytes for layer in states.profile.layers[start:end])
            parameters = self.part(states.parameter_bytes, start, end)
            if self.scaling * parameters + self.share(group, size) * (held + working) > memory:
                return False
        return True

    def stage(self, size, again, start, end, group):
        share = self.share(group, size)
        forward = share * self.part(self.states.forward_s, start, end)
        backward = share * self.part(self.states.backward_s, start, end)
        if end - start == len(self.states):
            reduce = self.beside(group, backward)
        else:
            reduce = self.ring(group, self.part(self.states.parameter_bytes, start, end))
        return forward, backward + (forward if again else 0.0), reduce

    def parts(self, size, start, end, group):
        """Gradients of data and of weights, where they are computed apart."""
        share = self.share(group, size)
        sums = self.states.data_s, self.states.weights_s
        return tuple(share * self.part(each, start, end) for each in sums)

    def ring(self, group, count):
        held = [last - first for first, last in zip(*group, strict=True)]
        devices = sum(held)
        if devices == 1 or not count:
            return 0.0
        machines = [at for at, each in enumerate(held) if each]
        links = [self.cluster.find_machine_link(at, at) for at in machines if held[at] > 1]
        if len(machines) > 1:
            links.append(self.cluster.between)
        rate = min(link.all_reduce_bandwidth for link in links)
        rounds = 2 * (devices - 1)
        return rounds / devices * count / rate + rounds * max(link.latency_s for link in links)

    def beside(self, group, backward):
        """The part of a whole model's all-reduce that is left after its backward pass."""
        whole = self.states.backward_s[-1]
        done = 0.0
        for at in reversed(range(len(self.states))):
            ready = backward * self.part(self.states.backward_s, at, len(self.states)) / whole
            seconds = self.ring(group, self.part(self.states.parameter_bytes, at, at + 1))
            done = max(done, ready) + seconds if seconds else done
        plain = self.ring(group, self.states.parameter_bytes[-1])
        return max(min(plain, done - backward), 0.0)

    def sends(self, spans, size):
        """All that crosses goes along, or each stage gets what it reads, where that is cheaper."""
        layers = self.states.profile.layers
        edges = self.states.profile.edges
        scale = size / self.states.profile.batch_size
        along = []
        straight = []
        spared = 0.0
        taken = 0.0
        for source, target in pairwise(spans):
            start, end, _ = target
            alive = {a for a, b in edges if a < start <= b}
            read = {a for a, b in edges if a < start <= b < end}
            crossing, got = (
                scale * sum(layers[a].activation_bytes for a in each) for each in (alive, read)
            )
            rate, latency = self.rate(source, target)
            along.append(latency + crossing * rate if crossing else 0.0)
            straight.append(latency + got * rate if got else 0.0)
            spared += (crossing - got) * rate
        ways = set()
        for layer, each in enumerate(layers):
            used = {layer, *(b for a, b in edges if a == layer)} if each.activation_bytes else set()
            holders = [
                at for at, (start, end, _) in enumerate(spans) if used & set(range(start, end))
            ]
            ways |= {(a, b) for a, b in pairwise(holders) if b - a > 1}
        taken = sum(self.rate(spans[a], spans[b])[1] for a, b in ways)
        return straight if ways and taken <= spared else along

    def rate(self, source, target):
        """Seconds a byte, and latency; both deal the micro-batch in the order of their devices."""
        mine = self.pieces(source[2])
        theirs = self.pieces(target[2])
        out = {}
        into = {}
        inner = 0.0
        latency = 0.0
        for a, b in product(mine, theirs):
            part = min(a[2], b[2]) - max(a[1], b[1])
            if part < 1e-9:
                continue
            link = self.cluster.find_machine_link(a[0], b[0])
            latency = max(latency, link.latency_s)
            if a[0] == b[0]:
                inner = max(
                    inner, min(part, max(self.one(source[2]), self.one(target[2]))) / link.bandwidth
                )
            else:
                out[a[0]] = out.get(a[0], 0.0) + part / link.bandwidth
                into[b[0]] = into.get(b[0], 0.0) + part / link.bandwidth
        return max(inner, *out.values(), *into.values(), 0.0), latency

    @staticmethod
    def one(group):
        return 1 / (sum(group[1]) - sum(group[0]))

    def pieces(self, group):
        done = 0.0
        found = []
        for at, (first, last) in enumerate(zip(*group, strict=True)):
            part = (last - first) * self.one(group)
            if part:
                found.append((at, done, done + part))
            done += part
        return found


def run(times, sends, orders, count, parts=None):
    """A step by fixed points: what each event waits for is recomputed until nothing moves.

    Parts are the seconds of gradients of data and of weights, where these have tasks of their own;
    halves of the backward passes if left out.
    """
    parts = parts or [(backward / 2, backward / 2) for _, backward, _ in times]
    stages = len(times)
    forward = [[0.0] * count for _ in times]
    backward = [[0.0] * count for _ in times]
    sent = [[0.0] * count for _ in times]
    back = [[0.0] * count for _ in times]
    split = [any(kind == "W" for kind, _ in passes) for passes in orders]
    last = [0.0] * stages
    moved = True
    while moved:
        moved = False
        for at in [*range(stages), *reversed(range(stages))]:
            free = 0.0
            for kind, k in orders[at]:
                if kind == "W":
                    free += parts[at][1]
                    continue
                if kind == "F":
                    ready = sent[at - 1][k] if at else 0.0
                    ends = forward
                    seconds = times[at][0]
                else:
                    ready = back[at + 1][k] if at + 1 < stages else forward[at][k]
                    ends = backward
                    seconds = parts[at][0] if split[at] else times[at][1]
                free = max(free, ready) + seconds
                moved |= ends[at][k] != free
                ends[at][k] = free
            last[at] = free
            for ends, arrive, link in (
                (forward, sent, at if at + 1 < stages else None),
                (backward, back, at - 1 if at else None),
            ):
                if link is not None:
                    free = 0.0
                    for k in range(count):
                        free = max(free, ends[at][k]) + sends[link]
                        moved |= arrive[at][k] != free
                        arrive[at][k] = free
    return max(end + reduce for end, (_, _, reduce) in zip(last, times, strict=True))


def order(kept, count):
    """The passes of a stage: forwards up to what may be in flight, then turn about."""
    found = [("F", k) for k in range(min(kept, count))]
    for k in range(count):
        found.append(("B", k))
        if k + kept < count:
            found.append(("F", k + kept))
    return found


def split_order(stage, stages, count):
    """The tasks of a stage of zb-h1: gradients of weights (W) as many later as stages are before.

    Once it has no forward left, one follows each of data.
    """
    ahead = min(stages - 1 - stage, count)
    found = [("F", k) for k in range(ahead)]
    done = 0
    for k in range(count):
        left = ahead + k < count
        found += [("F", ahead + k)] if left else []
        found.append(("B", k))
        if k - done >= (stage if left else 0):
            found.append(("W", done))
            done += 1
    return found + [("W", k) for k in range(done, count)]


def rounds_order(group, groups, rounds, count):
    """The work of a group of several stages: as many micro-batches as groups go round together."""
    passes = [
        (k // groups, each, k % groups, each * groups + group, k)
        for each in range(rounds)
        for k in range(count)
    ]
    forward = [("F", stage, k) for *_, stage, k in sorted(passes)]
    last = sorted(passes, key=lambda each: (each[0], -each[1], each[2]))
    backward = [("B", stage, k) for *_, stage, k in last]
    found = []
    for at, one in enumerate(forward):
        found.append(one)
        if at >= 2 * (groups - 1 - group) + (rounds - 1) * groups:
            found.append(backward.pop(0))
    return found + backward


def run_rounds(times, sends, groups, count):
    """An interleaved step by fixed points; a link carries all that one group sends another."""
    stages = len(times)
    orders = [rounds_order(at, groups, stages // groups, count) for at in range(groups)]
    came = {}
    ends = [0.0] * groups
    moved = True
    while moved:
        moved = False
        for group, order in enumerate(orders):
            free = 0.0
            links = {}
            for kind, at, k in order:
                forward = kind == "F"
                free = max(free, came.get((kind, at, k), 0.0)) + times[at][0 if forward else 1]
                to = at + 1 if forward else at - 1
                if to == stages:
                    arrival = free
                    key = ("B", at, k)
                elif to < 0:
                    continue
                else:
                    link = to % groups
                    arrival = max(free, links.get(link, 0.0)) + sends[min(at, to)]
                    links[link] = arrival
                    key = kind, to, k
                moved |= came.get(key) != arrival
                came[key] = arrival
            ends[group] = free
    return max(end + sum(reduce for *_, reduce in times[at::groups]) for at, end in enumerate(ends))
