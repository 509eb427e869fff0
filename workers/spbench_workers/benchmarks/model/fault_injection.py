"""Fault injection into models, to test the checks."""

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
from spbench_parallel.models.imported.stochastic import DropByPosition, find_stochastic_operators
from spbench_parallel.pipeline.stage_channel import Receiver
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.replicated import OwnTile, ReplicatedValues
from spbench_workers.context import Context

_Fault = Callable[[StageRunner, Stage, int], None]


def inject_fault(context: Context, engine: Engine, *, prefix: str = "") -> None:
    """Inject the fault of ``--inject`` into the stages of its rank.

    Two faults are on all ranks. ``tile-batchnorm`` is part of the plan, and with ``stale-state``
    any rank may send a stage's weights to rank 0. ``prefix`` starts the names of faults at full
    size.

    Raises:
        FaultWithoutEffectError: The fault has no effect in any of this rank's stages.
    """
    plan = engine.plan
    for fault, inject in _FAULTS.items():
        if context.planted(prefix + fault):
            refusals: list[FaultWithoutEffectError] = []
            for coordinates, runner in zip(engine.coordinates, engine.runners, strict=True):
                batches = [
                    batch for batch in plan.batches if batch.direction == coordinates.direction
                ]
                try:
                    inject(runner, plan.layout.stages[coordinates.stage], len(batches))
                except FaultWithoutEffectError as error:
                    refusals.append(error)
            if len(refusals) == len(engine.runners):
                raise refusals[0]
    if not prefix and context.planted_in_job(_STALE_STATE):
        for stage in engine.stages:
            _keep_initial_weight(stage)


def remove_faults() -> None:
    """Remove the faults of halos, which affect all gathers of this process."""
    Gather.fault_hook = Gather.gradient_fault_hook = None


def _keep_initial_weight(stage: nn.Module) -> None:
    """Save a stage's largest parameter with its current values even after training."""
    name, parameter = max(stage.named_parameters(), key=lambda pair: pair[1].numel())
    initial = parameter.detach().clone()
    state_dict = stage.state_dict

    def stale_state_dict() -> dict[str, torch.Tensor]:
        return {**state_dict(), name: initial}

    stage.state_dict = stale_state_dict  # type: ignore[method-assign, assignment]


def _drop_gradient(runner: StageRunner, _: Stage, __: int) -> None:
    """Lose the gradient of the largest parameter."""
    largest_parameter = max(runner.module.parameters(), key=torch.Tensor.numel)
    _inject_before_sums(runner, lambda: _scale_gradients([largest_parameter], 0.0))


def _mean_instead_of_sum(runner: StageRunner, stage: Stage, batches: int) -> None:
    """Average gradients of tiles, members and micro-batches instead of summing them."""
    summed_gradients = stage.rank_count * batches
    if summed_gradients == 1:
        raise FaultWithoutEffectError(
            "mean-instead-of-sum: one rank has all images of the step at once; take parts 2 or more"
        )
    _inject_before_sums(
        runner, lambda: _scale_gradients(list(runner.module.parameters()), 1.0 / summed_gradients)
    )


def _skip_micro_batch(runner: StageRunner, _: Stage, __: int) -> None:
    """Drop the gradients of a step's first micro-batch from this rank's parameters."""
    begin = runner.begin
    # The method that adds weight gradients depends on the schedule.
    method_name = "run_weight_backward" if runner.defers_weight_grad else "backward"
    run_backward = getattr(runner, method_name)
    parameters = list(runner.module.parameters())
    done_micro_batches: list[int] = []

    def begin_step(*, learns: bool) -> None:
        done_micro_batches.clear()
        begin(learns=learns)

    def skip_first(micro_batch: int) -> None:
        run_backward(micro_batch)
        if not done_micro_batches:
            _scale_gradients(parameters, 0.0)
        done_micro_batches.append(micro_batch)

    runner.begin = begin_step  # type: ignore[method-assign]
    setattr(runner, method_name, skip_first)


def _swap_neighbours(runner: StageRunner, stage: Stage, _: int) -> None:
    """Swap inputs or halos of different neighbours."""
    if runner.io.inputs:
        _flip_inputs(runner.io.inputs[-1].end)  # with direct skips, that of the longest skip
    elif stage.spatial:
        Gather.fault_hook = _flip_halos
    else:
        raise FaultWithoutEffectError(
            "wrong-neighbour: this rank gets nothing from others; take scheme lp or sp"
        )


def _lose_halo_gradients(_: StageRunner, stage: Stage, __: int) -> None:
    """Drop the gradients that other tiles return for the halos of this tile."""
    if not stage.spatial:
        raise FaultWithoutEffectError(
            "lost-halo-gradient: this rank has no tile; take scheme sp with split_size 1, "
            "or gems_sp"
        )
    Gather.gradient_fault_hook = _zero_pieces


def _zero_pieces(received: Sequence[torch.Tensor]) -> None:
    for piece in received:
        piece.zero_()


def _flip_inputs(inputs: Receiver) -> None:
    """Flip received inputs, so that tiles, or images of one pixel, are swapped."""
    take = inputs.take

    def take_flipped() -> tuple[torch.Tensor, ...]:
        return tuple(tensor.flip((0, 2, 3)) for tensor in take())

    inputs.take = take_flipped  # type: ignore[method-assign]


def _flip_halos(received: Sequence[torch.Tensor]) -> None:
    for piece in received:
        piece.copy_(piece.flip((0, 1, 2, 3)))


def _scale_weight_gradient(factor: float) -> _Fault:
    """Return a fault that multiplies the gradient of the largest convolution's weight."""

    def inject(runner: StageRunner, _: Stage, __: int) -> None:
        scale_weight_gradient(_find_largest_conv(runner.module), factor)

    return inject


def _scale_input_gradient(factor: float) -> _Fault:
    """Return a fault that multiplies the input gradient of the largest convolution."""

    def inject(runner: StageRunner, _: Stage, __: int) -> None:
        scale_input_gradient(_find_largest_conv(runner.module), factor)

    return inject


def _drop_tile(runner: StageRunner, stage: Stage, _: int) -> None:
    """Omit this tile from the sum of the largest convolution's gradients."""
    if not stage.spatial:
        raise FaultWithoutEffectError(
            "drop-tile: this rank has no tile; take scheme sp with split_size 1, or gems_sp"
        )
    convs = [module for module in runner.module.modules() if isinstance(module, SpatialConv2d)]
    if not convs:
        raise FaultWithoutEffectError(
            "drop-tile: this rank has no convolution with zeros around its image over tiles"
        )
    drop_tile(max(convs, key=lambda conv: conv.weight.numel()))


def _lose_tile_sums(runner: StageRunner, _: Stage, __: int) -> None:
    """Drop the gradients of all tiles for replicated values."""
    modules = [
        module
        for module in runner.module.modules()
        if isinstance(module, ReplicatedValues | OwnTile)
    ]
    if not modules:
        raise FaultWithoutEffectError(
            "lost-tile-sum: this rank has nothing whole beside tiles; take scheme sp with "
            "split_size 1, and a network with such an operator"
        )
    for module in modules:
        _lose_gradient(module)


def _draw_others(runner: StageRunner, _: Stage, __: int) -> None:
    """Use another seed for dropout on this rank than on one process."""
    operators = find_stochastic_operators(runner.module)
    if not operators:
        raise FaultWithoutEffectError(
            "other-draws: this rank drops nothing; take a network with dropout there"
        )
    for operator in operators:
        _shift_seed(operator)


def _shift_seed(operator: DropByPosition) -> None:
    forward = operator.forward

    def run_faulty(values: torch.Tensor) -> torch.Tensor:
        if operator.batch is not None:
            operator.batch = replace(operator.batch, seed=operator.batch.seed + 1)
        return forward(values)

    operator.forward = run_faulty  # type: ignore[method-assign]


class _TileDice(Loss):
    """A Dice loss that uses one rank's sums instead of the sums over ranks."""

    def sum_over_tiles(self, sums: torch.Tensor) -> torch.Tensor:
        # The other ranks wait for this rank in the sums of forward and backward.
        return sums + 0.0 * super().sum_over_tiles(sums)


def _use_tile_dice(runner: StageRunner, _: Stage, __: int) -> None:
    """Use the Dice coefficient of one rank's tile instead of the image's."""
    loss = runner.criterion
    if loss.name != DICE or loss.tiles is None or runner.io.outputs:
        raise FaultWithoutEffectError(
            "tile-dice: this rank has no Dice loss of a tile; take loss dice, scheme sp and "
            "tiles in the last stage"
        )
    runner.criterion = _TileDice(loss.name, loss.pixels, loss.tiles)


def _lose_gradient(module: nn.Module) -> None:
    forward = module.forward
    module.forward = lambda values: forward(_scale_backward(values, 0.0))


def scale_weight_gradient(conv: nn.Conv2d, factor: float) -> None:
    """Multiply the gradient of a convolution's weight in its backward pass."""
    conv.weight.register_hook(lambda gradient: gradient * factor)


def scale_input_gradient(conv: nn.Conv2d, factor: float) -> None:
    """Multiply the gradient of a convolution's input."""
    forward = conv.forward

    def run_faulty(pixels: torch.Tensor) -> torch.Tensor:
        return forward(_scale_backward(pixels, factor))

    conv.forward = run_faulty  # type: ignore[method-assign, assignment]


def drop_tile(conv: SpatialConv2d) -> None:
    """Omit this rank's tile from the sum of a convolution's gradients over tiles."""
    shared_parameters = conv.shared_parameters

    def run_faulty() -> tuple[torch.Tensor, ...]:
        return tuple(_scale_backward(parameter, 0.0) for parameter in shared_parameters())

    conv.shared_parameters = run_faulty  # type: ignore[method-assign]


def _scale_backward(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Return the values, with a multiplied gradient in backward."""
    tracked = values.view_as(values)
    if tracked.requires_grad:
        tracked.register_hook(lambda gradient: gradient * factor)
    return tracked


def _find_largest_conv(module: nn.Module) -> nn.Conv2d:
    convs = find_comparable_convs(module)
    if not convs:
        raise FaultWithoutEffectError(
            "this rank has no convolution of torch's own that runs once; take scheme lp, or sp "
            "with split_size 1"
        )
    return max(convs, key=lambda conv: conv.weight.numel())


def _inject_before_sums(runner: StageRunner, inject: Callable[[], None]) -> None:
    """Inject a fault into this rank's gradients before their sum over ranks."""
    finish = runner.finish

    def finish_wrongly() -> None:
        finish()
        inject()

    runner.finish = finish_wrongly  # type: ignore[method-assign]


def _scale_gradients(parameters: Sequence[torch.nn.Parameter], factor: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


_STALE_STATE = "stale-state"
SLIGHT_FACTOR = 1.01
"""A factor too small to show in a single number of 8 bits, but visible in a whole tensor."""
_FAULTS: dict[str, _Fault] = {
    "drop-gradient": _drop_gradient,
    "mean-instead-of-sum": _mean_instead_of_sum,
    "wrong-neighbour": _swap_neighbours,
    "skipped-microbatch": _skip_micro_batch,
    "lost-halo-gradient": _lose_halo_gradients,
    "zero-weight-gradient": _scale_weight_gradient(0.0),
    "zero-input-gradient": _scale_input_gradient(0.0),
    "scale-weight-gradient": _scale_weight_gradient(SLIGHT_FACTOR),
    "scale-input-gradient": _scale_input_gradient(SLIGHT_FACTOR),
    "drop-tile": _drop_tile,
    "lost-tile-sum": _lose_tile_sums,
    "tile-dice": _use_tile_dice,
    "other-draws": _draw_others,
}
