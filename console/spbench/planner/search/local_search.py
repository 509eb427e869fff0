"""Small changes of a plan, as long as they make its step shorter.

The search before this one tries a few bounds and, on a large cluster, a few groups. This one moves
a cut or a few devices at a time, takes another placement, joins two stages, splits one, or takes
another micro-batch size. In an interleaved plan all groups keep the same number of stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spbench.planner.cluster.placement import POLICIES, DeviceGroup, Placements, Policy
from spbench.planner.search.candidates import Shape, SizedShape
from spbench.planner.search.scoring import CandidateScores

_CUT_STEPS = (1, 2, 4)
_MAX_STARTS = 6
_MAX_INTERLEAVED_STARTS = 2
_MAX_STEP_RATIO = 2.0
"""The largest ratio of the step of a start to the best step."""
# Smaller than `_MAX_STEP_RATIO`, since interleaved steps take longest to simulate.
_MAX_INTERLEAVED_STEP_RATIO = 1.25
_MAX_SHAPES = 2000
"""Shapes that are tried from each start."""


class _Recipe(NamedTuple):
    """A shape by its construction: the ends, and the devices and policy of each group."""

    ends: tuple[int, ...]
    device_counts: tuple[int, ...]
    policies: tuple[Policy, ...]


def improve_candidates(
    scores: CandidateScores, placements: Placements, micro_batch_sizes: Sequence[int]
) -> None:
    """Change the best candidates, as long as small changes make them better.

    Args:
        scores: The candidates; receives the better ones.
        placements: The placements of the cluster.
        micro_batch_sizes: The allowed micro-batch sizes, rising.
    """
    for max_starts, max_ratio, interleaved in (
        (_MAX_STARTS, _MAX_STEP_RATIO, False),
        (_MAX_INTERLEAVED_STARTS, _MAX_INTERLEAVED_STEP_RATIO, True),
    ):
        for sized_shape in scores.list_best_shapes(max_starts, interleaved):
            climb = CandidateScores(scores.cost_model)
            climb.offer(*sized_shape)
            if climb.best is None or climb.step_s > max_ratio * scores.step_s:
                continue
            _climb(climb, placements, micro_batch_sizes)
            scores.offer(climb.best.shape, climb.best.micro_batch_size)


def _climb(
    scores: CandidateScores, placements: Placements, micro_batch_sizes: Sequence[int]
) -> None:
    """Replace the best candidate by its best change as long as that is better."""
    tried = 0
    while scores.best is not None and tried < _MAX_SHAPES:
        shape, micro_batch_size, _ = scores.best
        index = micro_batch_sizes.index(micro_batch_size)
        neighbour_sizes = micro_batch_sizes[max(index - 1, 0) : index + 2]
        recipes = dict.fromkeys(_generate_changes(_find_recipe(shape, placements), placements))
        changed = [_build_shape(recipe, placements) for recipe in recipes]
        changed_shapes = [
            SizedShape(changed_shape, micro_batch_size)
            for changed_shape in changed
            if changed_shape is not None
        ]
        resized_shapes = [SizedShape(shape, size) for size in neighbour_sizes]
        tried += len(changed_shapes)
        if not scores.offer_all(changed_shapes + resized_shapes, ranked=False):
            return


def _find_recipe(shape: Shape, placements: Placements) -> _Recipe:
    policies = []
    for group in shape.groups:
        fitting = (
            policy
            for policy in POLICIES
            if placements.place_group(group.first, group.size, policy) == group.last
        )
        policies.append(next(fitting, POLICIES[-1]))
    return _Recipe(shape.ends, tuple(group.size for group in shape.groups), tuple(policies))


def _build_shape(recipe: _Recipe, placements: Placements) -> Shape | None:
    """Return the shape of a recipe; None if there are too few devices."""
    used = placements.empty
    groups = []
    for count, policy in zip(recipe.device_counts, recipe.policies, strict=True):
        used_after = placements.place_group(used, count, policy)
        if used_after is None:  # such as when a stage before it took more devices
            used_after = placements.place_group(used, count, "scatter")
        if used_after is None:
            return None
        groups.append(DeviceGroup(used, used_after))
        used = used_after
    return Shape(recipe.ends, tuple(groups))


def _generate_changes(recipe: _Recipe, placements: Placements) -> Iterator[_Recipe]:
    yield from _move_cuts(recipe)
    yield from _move_devices(recipe, placements)
    for index in range(len(recipe.policies)):
        for policy in POLICIES:
            policies = (*recipe.policies[:index], policy, *recipe.policies[index + 1 :])
            yield recipe._replace(policies=policies)
    for policy in POLICIES:
        yield recipe._replace(policies=(policy,) * len(recipe.policies))
    if len(recipe.ends) == len(recipe.device_counts):
        yield from _join_stages(recipe)
        yield from _split_stages(recipe)


def _move_cuts(recipe: _Recipe) -> Iterator[_Recipe]:
    bounds = (0, *recipe.ends)
    for index, end in enumerate(recipe.ends[:-1]):
        for cut_step in _CUT_STEPS:
            for moved_end in (end - cut_step, end + cut_step):
                if bounds[index] < moved_end < bounds[index + 2]:
                    yield recipe._replace(ends=_change_element(recipe.ends, index, moved_end))


def _move_devices(recipe: _Recipe, placements: Placements) -> Iterator[_Recipe]:
    device_counts = recipe.device_counts
    free_devices = sum(placements.sizes) - sum(device_counts)
    move_sizes = sorted({1, max(placements.sizes), len(placements.sizes)})
    for index, count in enumerate(device_counts):
        for devices_moved in move_sizes:
            if count > devices_moved:
                counts_without_moved = _change_element(device_counts, index, count - devices_moved)
                yield recipe._replace(device_counts=counts_without_moved)
                targets = {index - 1, index + 1, 0, len(device_counts) - 1} - {
                    -1,
                    index,
                    len(device_counts),
                }
                for target in targets:
                    counts_after_move = _change_element(
                        counts_without_moved, target, counts_without_moved[target] + devices_moved
                    )
                    yield recipe._replace(device_counts=counts_after_move)
            if devices_moved <= free_devices:
                yield recipe._replace(
                    device_counts=_change_element(device_counts, index, count + devices_moved)
                )


def _join_stages(recipe: _Recipe) -> Iterator[_Recipe]:
    ends, device_counts, policies = recipe
    for index in range(len(ends) - 1):
        joined = (device_counts[index] + device_counts[index + 1],)
        yield _Recipe(
            ends[:index] + ends[index + 1 :],
            device_counts[:index] + joined + device_counts[index + 2 :],
            policies[:index] + policies[index + 1 :],
        )


def _split_stages(recipe: _Recipe) -> Iterator[_Recipe]:
    ends, device_counts, policies = recipe
    starts = (0, *ends[:-1])
    for index, (start, end, count) in enumerate(zip(starts, ends, device_counts, strict=True)):
        if end - start > 1 and count > 1:
            half = count // 2
            yield _Recipe(
                (*ends[:index], (start + end) // 2, *ends[index:]),
                (*device_counts[:index], count - half, half, *device_counts[index + 1 :]),
                (*policies[:index], policies[index], policies[index], *policies[index + 1 :]),
            )


def _change_element(numbers: tuple[int, ...], index: int, number: int) -> tuple[int, ...]:
    return (*numbers[:index], number, *numbers[index + 1 :])
