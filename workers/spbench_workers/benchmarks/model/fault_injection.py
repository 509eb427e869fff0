"""Faults of the model benchmarks, planted to show that the checks notice them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from spbench_core.layout.stages import Stage
from spbench_parallel.engine import Engine
from spbench_parallel.errors import FaultWithoutEffectError
from spbench_parallel.losses import DICE, Loss
from spbench_parallel.models.imported.plain_modules import find_comparable_convs
from spbench_parallel.models.imported.stochastic import DropByPosition, find_drops
from spbench_parallel.pipeline.stage_channel import Receiver
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.replicated import OwnTile, ReplicatedValues
from spbench_workers.context import Context

_Spoil = Callable[[StageRunner, Stage, int], None]


def inject_fault(context: Context, engine: Engine, *, prefix: str = "") -> None:
    """Plant the fault that ``--inject`` asks for in the last rank's stages.

    The fault ``tile-batchnorm`` is in the plan: all ranks show it together. All ranks show
    ``stale-state``, too: any of them may send a stage's weights to rank 0.
    ``prefix`` is that of the names of faults at full size.

    Raises:
        NothingToSpoilError: The fault changes nothing in any of this rank's stages.
    """
    plan = engine.plan
    for fault, spoil in _FAULTS.items():
        if context.planted(prefix + fault):
            refusals: list[FaultWithoutEffectError] = []
            for place, runner in zip(engine.coordinates, engine.runners, strict=True):
                batches = [one for one in plan.batches if one.direction == place.direction]
                try:
                    spoil(runner, plan.layout.stages[place.stage], len(batches))
                except FaultWithoutEffectError as error:
                    refusals.append(error)
            if len(refusals) == len(engine.runners):
                raise refusals[0]
    if not prefix and context.planted_in_job(_STALE_STATE):
        for stage in engine.stages:
            _keep_initial_weight(stage)


def remove_faults() -> None:
    """Remove the faults of halos, which all gathers of this process share."""
    Gather.fault_hook = Gather.gradient_fault_hook = None


def _keep_initial_weight(stage: nn.Module) -> None:
    """Give files the present values of a stage's largest parameter, also after training."""
    name, parameter = max(stage.named_parameters(), key=lambda pair: pair[1].numel())
    initial = parameter.detach().clone()
    state_dict = stage.state_dict

    def stale() -> dict[str, torch.Tensor]:
        return {**state_dict(), name: initial}

    stage.state_dict = stale  # type: ignore[method-assign, assignment]


def _drop_gradient(runner: StageRunner, _: Stage, __: int) -> None:
    """Lose the gradient of the largest parameter."""
    largest = max(runner.module.parameters(), key=torch.Tensor.numel)
    _before_sums(runner, lambda: _scale([largest], 0.0))


def _mean_instead_of_sum(runner: StageRunner, stage: Stage, batches: int) -> None:
    """Average the gradients of tiles, of members and of micro-batches, in place of summing them."""
    shares = stage.ranks * batches
    if shares == 1:
        raise FaultWithoutEffectError(
            "mean-instead-of-sum: one rank has all images of the step at once; take parts 2 or more"
        )
    _before_sums(runner, lambda: _scale(list(runner.module.parameters()), 1.0 / shares))


def _skip_micro_batch(runner: StageRunner, _: Stage, __: int) -> None:
    """Drop the gradients of a step's first micro-batch from this rank's parameters."""
    begin = runner.begin
    # What adds the gradients of the weights.
    adding = "weights" if runner.defers_weight_grad else "backward"
    add = getattr(runner, adding)
    parameters = list(runner.module.parameters())
    done: list[int] = []

    def begin_anew(*, learns: bool) -> None:
        done.clear()
        begin(learns=learns)

    def skip_first(micro_batch: int) -> None:
        add(micro_batch)
        if not done:
            _scale(parameters, 0.0)
        done.append(micro_batch)

    runner.begin = begin_anew  # type: ignore[method-assign]
    setattr(runner, adding, skip_first)


def _confuse_neighbours(runner: StageRunner, stage: Stage, _: int) -> None:
    """Mix up neighbours: inputs, or halos, of one are taken for those of another."""
    if runner.io.inputs:
        _turn_over(runner.io.inputs[-1].end)  # where skips go straight, the longest of them
    elif stage.spatial:
        Gather.fault_hook = _turn_halos
    else:
        raise FaultWithoutEffectError(
            "wrong-neighbour: the last rank gets nothing from others; take scheme lp or sp"
        )


def _lose_halo_gradients(_: StageRunner, stage: Stage, __: int) -> None:
    """Lose the gradients that other tiles send back for the halos that they had from this one."""
    if not stage.spatial:
        raise FaultWithoutEffectError(
            "lost-halo-gradient: the last rank has no tile; take scheme sp with split_size 1, "
            "or gems_sp"
        )
    Gather.gradient_fault_hook = _clear


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


def _scale_weight_gradient(factor: float) -> _Spoil:
    """Return a fault that multiplies the gradient of the largest convolution's weight."""

    def spoil(runner: StageRunner, _: Stage, __: int) -> None:
        scale_weight_gradient(_largest_conv(runner.module), factor)

    return spoil


def _scale_input_gradient(factor: float) -> _Spoil:
    """Return a fault that multiplies the gradient that the largest convolution gives back."""

    def spoil(runner: StageRunner, _: Stage, __: int) -> None:
        scale_input_gradient(_largest_conv(runner.module), factor)

    return spoil


def _drop_tile(runner: StageRunner, stage: Stage, _: int) -> None:
    """Leave this tile out of the sum of the largest convolution's gradients."""
    if not stage.spatial:
        raise FaultWithoutEffectError(
            "drop-tile: the last rank has no tile; take scheme sp with split_size 1, or gems_sp"
        )
    convs = [one for one in runner.module.modules() if isinstance(one, SpatialConv2d)]
    if not convs:
        raise FaultWithoutEffectError(
            "drop-tile: the last rank has no convolution with zeros around its image over tiles"
        )
    drop_tile(max(convs, key=lambda conv: conv.weight.numel()))


def _lose_tile_sums(runner: StageRunner, _: Stage, __: int) -> None:
    """Lose the gradients that all tiles give to what every rank has beside them."""
    found = [one for one in runner.module.modules() if isinstance(one, ReplicatedValues | OwnTile)]
    if not found:
        raise FaultWithoutEffectError(
            "lost-tile-sum: the last rank has nothing whole beside tiles; take scheme sp with "
            "split_size 1, and a network with such an operator"
        )
    for module in found:
        _lose_gradient(module)


def _draw_others(runner: StageRunner, _: Stage, __: int) -> None:
    """Draw other numbers on the last rank than on one process, where it drops some."""
    found = find_drops(runner.module)
    if not found:
        raise FaultWithoutEffectError(
            "other-draws: the last rank drops nothing; take a network with dropout there"
        )
    for operator in found:
        _spoil_draws(operator)


def _spoil_draws(operator: DropByPosition) -> None:
    forward = operator.forward

    def spoilt(values: torch.Tensor) -> torch.Tensor:
        if operator.batch is not None:
            operator.batch = replace(operator.batch, seed=operator.batch.seed + 1)
        return forward(values)

    operator.forward = spoilt  # type: ignore[method-assign]


class _TileDice(Loss):
    """A Dice loss whose sums are lost on their way to the last rank, which takes its own."""

    def whole_sums(self, own: torch.Tensor) -> torch.Tensor:
        # Once forward and once backward it sums with the other ranks, which wait for it.
        return own + 0.0 * super().sum_over_tiles(own)


def _keep_tile_dice(runner: StageRunner, _: Stage, __: int) -> None:
    """Take the Dice coefficient of the last rank's own tile for that of the whole image."""
    loss = runner.criterion
    if loss.name != DICE or loss.tiles is None or runner.io.outputs:
        raise FaultWithoutEffectError(
            "tile-dice: the last rank has no Dice loss of a tile; take loss dice, scheme sp and "
            "tiles in the last stage"
        )
    runner.criterion = _TileDice(loss.name, loss.pixels, loss.tiles)


def _lose_gradient(module: nn.Module) -> None:
    forward = module.forward
    module.forward = lambda values: forward(_scaled_back(values, 0.0))


def scale_weight_gradient(conv: nn.Conv2d, factor: float) -> None:
    """Multiply the gradient of a convolution's weight, as its backward pass gives it."""
    conv.weight.register_hook(lambda gradient: gradient * factor)


def scale_input_gradient(conv: nn.Conv2d, factor: float) -> None:
    """Multiply the gradient that a convolution gives back for its input."""
    forward = conv.forward

    def spoilt(pixels: torch.Tensor) -> torch.Tensor:
        return forward(_scaled_back(pixels, factor))

    conv.forward = spoilt  # type: ignore[method-assign, assignment]


def drop_tile(conv: SpatialConv2d) -> None:
    """Leave this rank's tile out of the sum of a convolution's gradients over the tiles."""
    shared = conv.shared_parameters

    def spoilt() -> tuple[torch.Tensor, ...]:
        return tuple(_scaled_back(one, 0.0) for one in shared())

    conv.shared_parameters = spoilt  # type: ignore[method-assign]


def _scaled_back(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Return the values, whose gradient is multiplied on its way back."""
    given = values.view_as(values)
    if given.requires_grad:
        given.register_hook(lambda gradient: gradient * factor)
    return given


def _largest_conv(module: nn.Module) -> nn.Conv2d:
    convs = find_comparable_convs(module)
    if not convs:
        raise FaultWithoutEffectError(
            "the last rank has no convolution of torch's own that runs once; take scheme lp, or sp "
            "with split_size 1"
        )
    return max(convs, key=lambda conv: conv.weight.numel())


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


_STALE_STATE = "stale-state"
SLIGHT_FACTOR = 1.01
"""A factor that no single number of 8 bits shows, and that a whole tensor does."""
_FAULTS: dict[str, _Spoil] = {
    "drop-gradient": _drop_gradient,
    "mean-instead-of-sum": _mean_instead_of_sum,
    "wrong-neighbour": _confuse_neighbours,
    "skipped-microbatch": _skip_micro_batch,
    "lost-halo-gradient": _lose_halo_gradients,
    "zero-weight-gradient": _scale_weight_gradient(0.0),
    "zero-input-gradient": _scale_input_gradient(0.0),
    "scale-weight-gradient": _scale_weight_gradient(SLIGHT_FACTOR),
    "scale-input-gradient": _scale_input_gradient(SLIGHT_FACTOR),
    "drop-tile": _drop_tile,
    "lost-tile-sum": _lose_tile_sums,
    "tile-dice": _keep_tile_dice,
    "other-draws": _draw_others,
}
