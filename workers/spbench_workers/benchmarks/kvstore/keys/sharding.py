"""Assignment of keys to servers and merge devices, and the message tags of shards.

A merge device sums keys of its worker (comm.h of MXNet).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

BIGARRAY_BOUND = 1_000_000
"""Least elements of an array that MXNet splits (MXNET_KVSTORE_BIGARRAY_BOUND)."""

_PRIME = 9973


def assign_largest_first(sizes: Sequence[int], bins: int) -> list[int]:
    """Assign sizes to bins, the largest first, each to the least loaded bin.

    Equal sizes keep their order, and the first of equally loaded bins is taken, so that every rank
    computes the same assignment. The fullest bin has at most 4/3 - 1/(3 bins) of its optimal load
    (Graham, 1969).
    """
    loads = [0] * bins
    chosen_bins = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        bin_ = loads.index(min(loads))
        chosen_bins[index] = bin_
        loads[bin_] += sizes[index]
    return chosen_bins


def sum_loads(sizes: Sequence[int], chosen_bins: Sequence[int], bins: int) -> list[int]:
    """Return the load of each bin: the sum of the sizes assigned to it."""
    loads = [0] * bins
    for size, bin_ in zip(sizes, chosen_bins, strict=True):
        loads[bin_] += size
    return loads


def compute_max_over_mean(loads: Sequence[int]) -> float:
    """Return the fullest bin's load over the mean; 1.0 if the loads are equal or 0."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


def assign_merge_devices(elements: Sequence[int], devices: int) -> list[int]:
    """Return each key's merge device of a worker, like MXNet's ``device`` store.

    Keys are assigned by size, the largest first, each to the least loaded device. Keys are not
    split, so one large array may keep its merge device busy while the others wait.

    Args:
        elements: Elements of each key, in key order.
        devices: Devices of the worker.
    """
    return assign_largest_first(elements, devices)


@dataclass(frozen=True, slots=True)
class Shard:
    """Elements ``first`` to before ``last`` of a key on a ``server``."""

    server: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first


Shards = list[list[Shard]]
"""The shards of each key in the order of their elements, which they cover completely."""


def make_shards(
    elements: Sequence[int],
    servers: int,
    scheme: str = "hash",
    bigarray_bound: int = BIGARRAY_BOUND,
    *,
    word: int = 1,
) -> Shards:
    """Return the shards of each key, the same on every rank.

    Args:
        elements: Elements of each key, in key order.
        servers: The number of servers.
        scheme: ``hash`` or ``balanced``.
        bigarray_bound: Arrays of at least this many elements are split.
        word: Elements that must stay together, such as those of one word of a compressed gradient.
            Then words instead of elements are split, and the last shard takes the remainder.

    Raises:
        KeyError: The scheme is not in SCHEMES.
    """
    return SCHEMES[scheme](elements, servers, bigarray_bound, word)


def sum_server_loads(shards_of_keys: Shards, servers: int) -> list[int]:
    """Return the elements that each server keeps."""
    shards = [shard for shards_of_key in shards_of_keys for shard in shards_of_key]
    return sum_loads([shard.count for shard in shards], [shard.server for shard in shards], servers)


def compute_imbalance(shards_of_keys: Shards, servers: int) -> float:
    """Return the load of the fullest server over the mean; 1.0 is even."""
    return compute_max_over_mean(sum_server_loads(shards_of_keys, servers))


def _shard_by_hash(elements: Sequence[int], servers: int, bound: int, word: int) -> Shards:
    no_loads = [0] * servers
    return [
        [Shard(key * _PRIME % servers, 0, count)]
        if count < bound
        else _split_key(count, no_loads, word)
        for key, count in enumerate(elements)
    ]


def _shard_evenly(elements: Sequence[int], servers: int, bound: int, word: int) -> Shards:
    """Assign small arrays, then split the others over the least loaded servers.

    An array larger than a server's fair share is split regardless of the bound. If the hash is
    more even, which can happen for a few keys, its result is used.
    """
    total = sum(elements)
    small_keys = [
        key for key, count in enumerate(elements) if count < bound and count * servers <= total
    ]
    chosen_servers = assign_largest_first([elements[key] for key in small_keys], servers)
    loads = sum_loads([elements[key] for key in small_keys], chosen_servers, servers)
    server_by_key = dict(zip(small_keys, chosen_servers, strict=True))
    balanced: Shards = []
    for key, count in enumerate(elements):
        if key in server_by_key:
            balanced.append([Shard(server_by_key[key], 0, count)])
        else:
            balanced.append(_split_key(count, loads, word))
            for shard in balanced[-1]:
                loads[shard.server] += shard.count
    hashed = _shard_by_hash(elements, servers, bound, word)
    return min(balanced, hashed, key=lambda candidate: compute_imbalance(candidate, servers))


def _split_key(count: int, loads: Sequence[int], word: int) -> list[Shard]:
    """Split a key between words so that the least loaded servers reach the same level.

    With equal loads each server gets a shard, like in MXNet. A server without a word has no shard.
    """
    padded_count = -(-count // word) * word
    servers_by_load = sorted(range(len(loads)), key=loads.__getitem__)
    sorted_loads = [loads[server] for server in servers_by_load]
    filled_count = max(
        n for n in range(1, len(loads) + 1) if _reaches(padded_count, sorted_loads[:n])
    )
    # The level times the number of filled servers, which stays a whole number.
    scaled_level = padded_count + sum(sorted_loads[:filled_count])
    servers = sorted(servers_by_load[:filled_count])
    cuts = [0]
    scaled_assigned = 0
    for server in servers:
        scaled_assigned += scaled_level - filled_count * loads[server]
        cuts.append(min(count, word * _round_quotient(scaled_assigned, filled_count * word)))
    pieces = zip(servers, pairwise(cuts), strict=True)
    return [Shard(server, first, last) for server, (first, last) in pieces if last > first]


def _reaches(amount: int, by_load: Sequence[int]) -> bool:
    """Return whether an amount lifts these servers to the load of the last one."""
    return amount >= by_load[-1] * len(by_load) - sum(by_load)


def _round_quotient(numerator: int, denominator: int) -> int:
    """Return the exact quotient rounded like in C++, with halves away from zero."""
    return (2 * numerator + denominator) // (2 * denominator)


SCHEMES: dict[str, Callable[[Sequence[int], int, int, int], Shards]] = {
    "hash": _shard_by_hash,
    "balanced": _shard_evenly,
}


PUSH = 0
PULL = 1
"""Kinds of messages: gradients and their acks, or pull requests and their values."""


@dataclass(frozen=True, slots=True)
class TaggedShard:
    """A shard of ``key`` and its ``index`` among its server's shards, for tags."""

    server: int
    index: int
    key: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first

    def tag(self, kind: int) -> int:
        """Return the tag of its messages of a kind (PUSH or PULL)."""
        return 2 * self.index + kind


def tag_shards(shards: Shards, servers: int) -> list[list[TaggedShard]]:
    """Return the tagged shards of each key, the same on every rank."""
    shard_counts = [0] * servers
    tagged_shards: list[list[TaggedShard]] = []
    for key, shards_of_key in enumerate(shards):
        tagged_shards.append([])
        for shard in shards_of_key:
            index = shard_counts[shard.server]
            shard_counts[shard.server] += 1
            tagged_shards[-1].append(TaggedShard(shard.server, index, key, shard.first, shard.last))
    return tagged_shards


def list_server_shards(
    tagged_shards: Sequence[Sequence[TaggedShard]], server: int
) -> list[TaggedShard]:
    """Return a server's tagged shards, in the order of their indices."""
    return [
        shard
        for shards_of_key in tagged_shards
        for shard in shards_of_key
        if shard.server == server
    ]
