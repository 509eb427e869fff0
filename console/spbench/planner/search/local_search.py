"""Small changes of a plan that make its step shorter, as long as there are any.

The search before sees some bounds, and on a large cluster some groups. This one moves a cut or a
few devices at a time, takes another placement, joins two stages or splits one, or takes another
micro-batch size. Of an interleaved plan all groups keep as many stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spbench.planner.cluster.placement import POLICIES, DeviceGroup, Placements, Policy
from spbench.planner.search.candidates import Shape
from spbench.planner.search.scoring import CandidateScores

_CUT_STEPS = (1, 2, 4)
_STARTS = 6
_INTERLEAVED_STARTS = 2
_FAR = 2.0
"""The factor by which the step of a start may be longer than the best one."""
_INTERLEAVED_FAR = 1.25
"""The same of interleaved ones, whose simulation takes longest."""
_EFFORT = 2000
"""Shapes that are looked at from each start."""


class _Recipe(NamedTuple):
    """A shape by how it is made: ends, and numbers of devices and the policy of each group."""

    ends: tuple[int, ...]
    needs: tuple[int, ...]
    policies: tuple[Policy, ...]


def improve_candidates(
    scores: CandidateScores, placements: Placements, micro_batches: Sequence[int]
) -> None:
    """Change the best candidates, as long as small changes make them better.

    Args:
        scores: Has the candidates, and takes the better ones.
        placements: Of its cluster.
        micro_batches: The sizes that are allowed, rising.
    """
    for most, far, interleaved in (
        (_STARTS, _FAR, False),
        (_INTERLEAVED_STARTS, _INTERLEAVED_FAR, True),
    ):
        for start in scores.best_shapes(most, interleaved):
            climb = CandidateScores(scores.cost_model)
            climb.offer(*start)
            if climb.best is None or climb.step_s > far * scores.step_s:
                continue
            _climb(climb, placements, micro_batches)
            scores.offer(climb.best.shape, climb.best.micro_batch)


def _climb(scores: CandidateScores, placements: Placements, micro_batches: Sequence[int]) -> None:
    looked = 0
    while scores.best is not None and looked < _EFFORT:
        shape, micro_batch, _ = scores.best
        at = micro_batches.index(micro_batch)
        near = micro_batches[max(at - 1, 0) : at + 2]
        recipes = dict.fromkeys(_changes(_recipe(shape, placements), placements))
        made = [found for recipe in recipes if (found := _made(recipe, placements))]
        looked += len(made)
        offers = [(each, micro_batch) for each in made] + [(shape, size) for size in near]
        if not scores.offer_all(offers, ranked=False):
            return


def _recipe(shape: Shape, placements: Placements) -> _Recipe:
    needs = tuple(group.size for group in shape.groups)
    policies = tuple(
        next(
            (
                each
                for each in POLICIES
                if placements.place_group(group.first, need, each) == group.last
            ),
            POLICIES[-1],
        )
        for group, need in zip(shape.groups, needs, strict=True)
    )
    return _Recipe(shape.ends, needs, policies)


def _made(recipe: _Recipe, placements: Placements) -> Shape | None:
    """Return the shape; None where there is no room for it."""
    used = placements.empty
    groups = []
    for need, policy in zip(recipe.needs, recipe.policies, strict=True):
        after = placements.place_group(used, need, policy)
        if after is None:  # as when a stage before it took more
            after = placements.place_group(used, need, "scatter")
        if after is None:
            return None
        groups.append(DeviceGroup(used, after))
        used = after
    return Shape(recipe.ends, tuple(groups))


def _changes(recipe: _Recipe, placements: Placements) -> Iterator[_Recipe]:
    yield from _other_cuts(recipe)
    yield from _other_needs(recipe, placements)
    for at in range(len(recipe.policies)):
        for policy in POLICIES:
            changed = (*recipe.policies[:at], policy, *recipe.policies[at + 1 :])
            yield recipe._replace(policies=changed)
    for policy in POLICIES:
        yield recipe._replace(policies=(policy,) * len(recipe.policies))
    if len(recipe.ends) == len(recipe.needs):
        yield from _joined(recipe)
        yield from _split(recipe)


def _other_cuts(recipe: _Recipe) -> Iterator[_Recipe]:
    bounds = (0, *recipe.ends)
    for at, end in enumerate(recipe.ends[:-1]):
        for step in _CUT_STEPS:
            for other in (end - step, end + step):
                if bounds[at] < other < bounds[at + 2]:
                    yield recipe._replace(ends=_with(recipe.ends, at, other))


def _other_needs(recipe: _Recipe, placements: Placements) -> Iterator[_Recipe]:
    needs = recipe.needs
    free = sum(placements.sizes) - sum(needs)
    steps = sorted({1, max(placements.sizes), len(placements.sizes)})
    for at, need in enumerate(needs):
        for step in steps:
            if need > step:
                fewer = _with(needs, at, need - step)
                yield recipe._replace(needs=fewer)
                for to in {at - 1, at + 1, 0, len(needs) - 1} - {-1, at, len(needs)}:
                    yield recipe._replace(needs=_with(fewer, to, fewer[to] + step))
            if step <= free:
                yield recipe._replace(needs=_with(needs, at, need + step))


def _joined(recipe: _Recipe) -> Iterator[_Recipe]:
    ends, needs, policies = recipe
    for at in range(len(ends) - 1):
        both = (needs[at] + needs[at + 1],)
        yield _Recipe(
            ends[:at] + ends[at + 1 :],
            needs[:at] + both + needs[at + 2 :],
            policies[:at] + policies[at + 1 :],
        )


def _split(recipe: _Recipe) -> Iterator[_Recipe]:
    ends, needs, policies = recipe
    starts = (0, *ends[:-1])
    for at, (start, end, need) in enumerate(zip(starts, ends, needs, strict=True)):
        if end - start > 1 and need > 1:
            half = need // 2
            yield _Recipe(
                (*ends[:at], (start + end) // 2, *ends[at:]),
                (*needs[:at], need - half, half, *needs[at + 1 :]),
                (*policies[:at], policies[at], policies[at], *policies[at + 1 :]),
            )


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
