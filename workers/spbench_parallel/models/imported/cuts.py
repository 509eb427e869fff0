"""Cuts of a traced network into layers: where a pipeline may go from one stage to the next.

A cut hands over all tensors that are alive there: what operators before it gave and operators
after it read, so that skips may cross stages. Between two operators that multiply (convolutions,
linear layers, products) there is at most one cut, the last of those with the fewest tensors alive,
but before maps are flattened. It is left out where more are alive than at the cuts on both sides of
it, as within a residual block. There is none where something is alive that has no row for each
image, or a map whose channels are not first, and none between two uses of one parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod

import torch
from torch import fx

from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.pixel_axes import MAP_AXES, pixel_axes
from spbench_parallel.models.imported.tracing import TracedNetwork


@dataclass(frozen=True, slots=True)
class LayerSpan:
    """The operators of one layer.

    Attributes:
        first: The first one, by index.
        last: One past the last one.
        inputs: The nodes whose tensors it gets, in their order.
        outputs: Those that it gives.
    """

    first: int
    last: int
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def find_layer_spans(
    network: TracedNetwork, cuts: Sequence[int] | None = None
) -> tuple[LayerSpan, ...]:
    """Return the layers of a network, with cuts before these operators, or wherever it can be."""
    alive = _alive(network)
    kept = _cuts(network, alive) if cuts is None else cuts
    ends = pairwise((0, *kept, len(network.operators)))
    return tuple(LayerSpan(first, last, alive[first], alive[last]) for first, last in ends)


def _cuts(network: TracedNetwork, alive: Sequence[Sequence[fx.Node]]) -> list[int]:
    count = len(network.operators)
    tied = list(_tied(network))
    free = [
        at
        for at in range(1, count)
        if all(node in network.shapes and _has_channels_first(network, node) for node in alive[at])
        and not any(first < at <= last for first, last in tied)
    ]
    multiply = [at for at in range(count) if network.operators[at].multiply_adds]
    between = ([at for at in free if first < at <= second] for first, second in pairwise(multiply))
    best = [_best(network, alive, some) for some in between if some]
    return _fewest(best, [len(alive[at]) for at in best])


def _best(network: TracedNetwork, alive: Sequence[Sequence[fx.Node]], places: Sequence[int]) -> int:
    """Return the last of the cuts with the fewest tensors alive, before they are flattened.

    Stages of tiles can end in maps alone, so that what has pixels, and is no larger, is better.
    """
    last = min(places, key=lambda at: (len(alive[at]), -at))
    if _are_maps(network, alive[last]):
        return last
    fewest = len(alive[last])
    size = _values(network, alive[last])
    maps = [
        at
        for at in places
        if len(alive[at]) == fewest
        and _values(network, alive[at]) <= size
        and _are_maps(network, alive[at])
    ]
    return max(maps, default=last)


def _are_maps(network: TracedNetwork, nodes: Sequence[fx.Node]) -> bool:
    shapes = (network.shapes[node] for node in nodes)
    return all(len(shape) == 3 and shape[1:] != (1, 1) for shape in shapes)


def _values(network: TracedNetwork, nodes: Sequence[fx.Node]) -> int:
    return sum(prod(network.shapes[node]) for node in nodes)


def _alive(network: TracedNetwork) -> list[tuple[fx.Node, ...]]:
    """Return the nodes that are alive before each operator, and after the last one.

    They come from operators before it, and it, or one after it, reads them.
    """
    end = len(network.operators)
    alive: list[list[fx.Node]] = [[] for _ in range(end + 1)]
    for node, place in network.positions.items():
        users = [end if user.op == "output" else network.positions[user] for user in node.users]
        for at in range(place + 1, max(users, default=-1) + 1):
            alive[at].append(node)
    return [tuple(nodes) for nodes in alive]


def _has_channels_first(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether what crosses a cut is a map as stages know it, or no map."""
    axes = pixel_axes(network).get(node)
    shape = network.shapes[node]
    return axes == MAP_AXES or (axes is None and (len(shape) != 3 or shape[1:] == (1, 1)))


def _fewest(places: Sequence[int], numbers: Sequence[int]) -> list[int]:
    """Return the cuts at which no more tensors are alive than on one of both sides.

    Args:
        places: The cuts.
        numbers: The tensors that are alive at each; the image is one, and so is the output.
    """
    rows = [
        (number, [place for place, _ in several])
        for number, several in groupby(zip(places, numbers, strict=True), key=lambda pair: pair[1])
    ]
    around = [1, *(number for number, _ in rows), 1]
    found: list[int] = []
    for before, (number, several), after in zip(around, rows, around[2:], strict=False):
        if not (number > before and number > after):
            found += several
    return found


def _tied(network: TracedNetwork) -> Iterator[tuple[int, int]]:
    """Yield the first and the last operator that use one parameter, or one running statistic."""
    places = network.positions
    used: dict[int, list[int]] = {}
    for node in network.graph.nodes:
        if node.op == "call_module":
            module = network.module.get_submodule(str(node.target))
            for tensor in (*module.parameters(), *module.buffers()):
                used.setdefault(id(tensor), []).append(places[node])
        elif node.op == "get_attr":
            found = get_attribute(network.module, str(node.target))
            if isinstance(found, torch.Tensor) and not network.is_constant(node):
                users = (places[user] for user in node.users if user in places)
                used.setdefault(id(found), []).extend(users)
    for several in used.values():
        if max(several, default=0) > min(several, default=0):
            yield min(several), max(several)
