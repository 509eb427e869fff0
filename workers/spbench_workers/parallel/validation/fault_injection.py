"""Faults of the model benchmarks, planted to show that the checks notice them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from spbench_core.layout.stages import Stage
from spbench_workers.context import Context
from spbench_workers.errors import NothingToSpoilError
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.pipeline.stage_channel import Receiver
from spbench_workers.parallel.pipeline.stage_runner import StageRunner
from spbench_workers.spatial.gather import Gather


def plant(context: Context, engine: Engine, *, prefix: str = "") -> None:
    """Plant the fault that ``--inject`` asks for in the last rank's stages.

    The fault ``tile-batchnorm`` is in the plan: all ranks show it together. ``prefix`` is that of
    the names of faults at full size.

    Raises:
        NothingToSpoilError: The fault changes nothing in this layout.
    """
    plan = engine.plan
    for fault, spoil in _FAULTS.items():
        if context.planted(prefix + fault):
            for place, runner in zip(engine.places, engine.runners, strict=True):
                batches = [one for one in plan.batches if one.direction == place.direction]
                spoil(runner, plan.layout.stages[place.stage], len(batches))


def remove() -> None:
    """Remove the faults of halos, which all gathers of this process share."""
    Gather.spoil = Gather.spoil_gradients = None


def _drop_gradient(runner: StageRunner, _: Stage, __: int) -> None:
    """Lose the gradient of the largest parameter."""
    largest = max(runner.module.parameters(), key=torch.Tensor.numel)
    _before_sums(runner, lambda: _scale([largest], 0.0))


def _mean_instead_of_sum(runner: StageRunner, stage: Stage, batches: int) -> None:
    """Average the gradients of tiles, of members and of micro-batches, in place of summing them."""
    shares = stage.ranks * batches
    if shares == 1:
        raise NothingToSpoilError(
            "mean-instead-of-sum: one rank has all images of the step at once; take parts 2 or more"
        )
    _before_sums(runner, lambda: _scale(list(runner.module.parameters()), 1.0 / shares))


def _skip_micro_batch(runner: StageRunner, _: Stage, __: int) -> None:
    """Drop the gradients of a step's first micro-batch from this rank's parameters."""
    backward, begin = runner.backward, runner.begin
    parameters = list(runner.module.parameters())
    done: list[int] = []

    def begin_anew(*, learns: bool) -> None:
        done.clear()
        begin(learns=learns)

    def skip_first(micro_batch: int) -> None:
        backward(micro_batch)
        if not done:
            _scale(parameters, 0.0)
        done.append(micro_batch)

    runner.begin = begin_anew  # type: ignore[method-assign]
    runner.backward = skip_first  # type: ignore[method-assign]


def _confuse_neighbours(runner: StageRunner, stage: Stage, _: int) -> None:
    """Mix up neighbours: inputs, or halos, of one are taken for those of another."""
    if runner.io.inputs is not None:
        _turn_over(runner.io.inputs)
    elif stage.spatial:
        Gather.spoil = _turn_halos
    else:
        raise NothingToSpoilError(
            "wrong-neighbour: the last rank gets nothing from others; take scheme lp or sp"
        )


def _lose_halo_gradients(_: StageRunner, stage: Stage, __: int) -> None:
    """Lose the gradients that other tiles send back for the halos that they had from this one."""
    if not stage.spatial:
        raise NothingToSpoilError(
            "lost-halo-gradient: the last rank has no tile; take scheme sp with split_size 1, "
            "or gems_sp"
        )
    Gather.spoil_gradients = _clear


def _clear(received: Sequence[torch.Tensor]) -> None:
    for piece in received:
        piece.zero_()


def _turn_over(inputs: Receiver) -> None:
    """Flip received inputs, so that tiles, or images of one pixel, stand in each other's places."""
    take = inputs.take

    def take_turned() -> tuple[torch.Tensor, ...]:
        return tuple(tensor.flip((0, 2, 3)) for tensor in take())

    inputs.take = take_turned  # type: ignore[method-assign]


def _turn_halos(received: Sequence[torch.Tensor]) -> None:
    for piece in received:
        piece.copy_(piece.flip((0, 1, 2, 3)))


def _before_sums(runner: StageRunner, spoil: Callable[[], None]) -> None:
    """Spoil this rank's gradients at the end of a step, before they are summed."""
    finish = runner.finish

    def finish_wrongly() -> None:
        finish()
        spoil()

    runner.finish = finish_wrongly  # type: ignore[method-assign]


def _scale(parameters: Sequence[torch.nn.Parameter], factor: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


_FAULTS: dict[str, Callable[[StageRunner, Stage, int], None]] = {
    "drop-gradient": _drop_gradient,
    "mean-instead-of-sum": _mean_instead_of_sum,
    "wrong-neighbour": _confuse_neighbours,
    "skipped-microbatch": _skip_micro_batch,
    "lost-halo-gradient": _lose_halo_gradients,
}
