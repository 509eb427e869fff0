"""Saving and loading of checkpoints in any layout of ranks.

The file holds the whole model's parameters and running statistics, and the optimizer's state, by
the names that they have on one process. One copy of each stage is saved: that of the first replica,
of the direction that has the optimizer's state, of the first tile or member. The others have the
same weights. Running statistics of further replicas, which see other images, are not saved: all
replicas continue from the first one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from mpi4py import MPI

from spbench_core.models.layers import Model
from spbench_parallel.checkpoints.file import (
    SCHEMA,
    Checkpoint,
    check_model,
    check_states,
    check_tensors,
    check_writable,
    compute_digests,
    read,
    write,
)
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.training.trainer import Trainer

# Matches only messages of checkpoints: "CK" in ASCII.
_TAG = 0x434B
T = TypeVar("T")
StateKey = tuple[str, str]
"""The names of a parameter or buffer and of an optimizer's state; "" for the parameter itself."""
StateTensors = dict[StateKey, torch.Tensor]


def save(path: Path, engine: Engine, step: int) -> None:
    """Write a checkpoint. All ranks must call it, between steps; rank 0 writes.

    Args:
        path: The file; an existing one is replaced once the new one is complete.
        engine: The model.
        step: Number of training steps so far.

    Raises:
        CannotRunError: On all ranks, if the file cannot be written.
    """
    tensors = _gather_tensors(engine)

    def write_on_rank_0() -> None:
        if engine.world.rank == 0:
            write(path, _create_checkpoint(engine, step, tensors))

    run_on_all_ranks(engine.world, write_on_rank_0)


def check(path: Path, world: MPI.Intracomm, model: Model, *, learns: bool) -> None:
    """Check that a checkpoint can be read or written, before any work.

    All ranks must call it.

    Args:
        path: The file. In training it may be missing, and rank 0 writes it later.
        world: The ranks.
        model: The expected model.
        learns: Whether the model is trained.

    Raises:
        CannotRunError: There is no such file, it is of another model, or it cannot be written; on
            all ranks.
    """
    exists: bool = world.bcast(path.exists())

    def check_file() -> None:
        if exists or not learns:
            check_model(path, read(path), model)
        if learns and world.rank == 0:
            check_writable(path)

    run_on_all_ranks(world, check_file)


def load(path: Path, engine: Engine, *, weights_only: bool = False) -> int:
    """Load a checkpoint of any layout. All ranks must call it, between steps.

    Each rank reads the tensors of its layers. No rank changes its model if a check fails on any
    rank. Numbers of another format are converted. The learning rate becomes that of the checkpoint.

    Args:
        path: The file.
        engine: The model.
        weights_only: Leave the optimizer and its learning rate unchanged: for inference, or to
            start another training from these weights.

    Returns:
        The number of training steps of the checkpoint.

    Raises:
        CannotRunError: There is no such file, it cannot be read, or it is of another model or
            optimizer; on all ranks.
        ValueError: The engine was created for inference, and ``weights_only`` is not set.
    """
    trainer = None if weights_only else engine.trainer
    if trainer is None and not weights_only:
        raise ValueError("this engine learns nothing: load its weights only")

    def read_checked() -> Checkpoint:
        checkpoint = read(path)
        check_model(path, checkpoint, engine.plan.model)
        for stage in engine.stages:
            check_tensors(path, checkpoint.weights, stage.state_dict())
            if trainer is not None:
                parameters = dict(stage.named_parameters())
                check_states(path, checkpoint, trainer.optimizer, parameters)
        return checkpoint

    checkpoint = run_on_all_ranks(engine.world, read_checked)
    step_by_rank = engine.world.allgather(checkpoint.step)
    if len(set(step_by_rank)) > 1:
        raise CannotRunError(
            f"{path} is another file on other hosts (of steps {min(step_by_rank)} and "
            f"{max(step_by_rank)}): put it where all hosts see the same"
        )
    _load_into_engine(engine, checkpoint, trainer)
    return checkpoint.step


def _load_into_engine(engine: Engine, checkpoint: Checkpoint, trainer: Trainer | None) -> None:
    for stage in engine.stages:
        for name, tensor in stage.state_dict().items():
            tensor.copy_(checkpoint.weights[name])
        if trainer is not None:
            for name, parameter in stage.named_parameters():
                trainer.set_optimizer_state(parameter, checkpoint.states.get(name, {}))
    if trainer is not None and checkpoint.learning_rate is not None:
        trainer.learning_rate = checkpoint.learning_rate
    scale = engine.arithmetic.loss_scale
    if trainer is not None and scale is not None and checkpoint.loss_scale is not None:
        scale.value, scale.good_steps = checkpoint.loss_scale


def _create_checkpoint(engine: Engine, step: int, tensors: StateTensors) -> Checkpoint:
    trainer = engine.trainer
    model = engine.plan.model
    scale = engine.arithmetic.loss_scale
    weights: dict[str, torch.Tensor] = {}
    states: dict[str, dict[str, torch.Tensor]] = {}
    for (name, state_name), tensor in tensors.items():
        if state_name:
            states.setdefault(name, {})[state_name] = tensor
        else:
            weights[name] = tensor
    return Checkpoint(
        schema=SCHEMA,
        model=model.name,
        layers=compute_digests(model),
        step=step,
        optimizer=None if trainer is None else trainer.optimizer,
        learning_rate=None if trainer is None else trainer.learning_rate,
        loss_scale=None if scale is None else (scale.value, scale.good_steps),
        weights=weights,
        states=states,
    )


def gather_weights(engine: Engine) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield weights and running statistics of all stages on rank 0, with their names.

    All ranks must exhaust it, between steps; on other ranks it yields nothing. Tensors are on the
    CPU. Those of rank 0's stages may share the model's memory.
    """
    for stage, holder in _list_stage_holders(engine):
        if holder == engine.world.rank:
            state = engine.stage(stage, engine.plan.owner).state_dict()
            if holder == 0:
                yield from ((name, tensor.detach().cpu()) for name, tensor in state.items())
            else:
                _send_tensors(engine.world, {(name, ""): tensor for name, tensor in state.items()})
        elif engine.world.rank == 0:
            yield from (
                (name, tensor) for (name, _), tensor in _receive_tensors(engine.world, holder)
            )


def _gather_tensors(engine: Engine) -> StateTensors:
    """Return the tensors of all stages on rank 0, gathered stage by stage.

    On other ranks it is empty.
    """
    tensors: StateTensors = {}
    for stage, holder in _list_stage_holders(engine):
        if holder == engine.world.rank:
            local = _copy_stage_tensors(engine, stage)
            if holder == 0:
                tensors |= local
            else:
                _send_tensors(engine.world, local)
        elif engine.world.rank == 0:
            tensors |= dict(_receive_tensors(engine.world, holder))
    return tensors


def _list_stage_holders(engine: Engine) -> list[tuple[int, int]]:
    """Return the stages, each with the rank that sends its tensors to rank 0."""
    layout = engine.plan.layout
    owner = engine.plan.owner
    stages = range(len(layout.stages))
    return [(stage, layout.list_stage_ranks(stage, direction=owner)[0]) for stage in stages]


def _copy_stage_tensors(engine: Engine, stage: int) -> StateTensors:
    """Return copies of a stage's tensors on the CPU."""
    module = engine.stage(stage, engine.plan.owner)
    trainer = engine.trainer
    tensors = {(name, ""): tensor for name, tensor in module.state_dict().items()}
    if trainer is not None:
        for name, parameter in module.named_parameters():
            state = trainer.optimizer_state(parameter)
            tensors |= {(name, state_name): tensor for state_name, tensor in state.items()}
    return {
        key: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
        for key, tensor in tensors.items()
    }


def _send_tensors(world: MPI.Intracomm, tensors: StateTensors) -> None:
    # Names, shapes and formats come first: rank 0 allocates the memory for the tensors by them.
    world.send({key: (tensor.shape, tensor.dtype) for key, tensor in tensors.items()}, 0, _TAG)
    for tensor in tensors.values():
        world.Send(_byte_view(tensor.detach().cpu().contiguous()), 0, _TAG)


def _receive_tensors(world: MPI.Intracomm, holder: int) -> Iterator[tuple[StateKey, torch.Tensor]]:
    for key, (shape, dtype) in world.recv(source=holder, tag=_TAG).items():
        tensor = torch.empty(shape, dtype=dtype)
        world.Recv(_byte_view(tensor), holder, _TAG)
        yield key, tensor


def _byte_view(tensor: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor as bytes.

    MPI does not know all number formats.
    """
    return tensor.reshape(-1).view(torch.uint8).numpy()


def run_on_all_ranks(comm: MPI.Intracomm, action: Callable[[], T]) -> T:
    """Run an action on each rank, and fail on all of them if it fails on one.

    Raises:
        CannotRunError: The action failed on a rank; the text is that rank's.
    """
    problem = ""
    cause: Exception | None = None
    try:
        result = action()
    except Exception as error:  # of any kind: the other ranks must not wait for this one
        cause = error
        problem = str(error) if isinstance(error, CannotRunError) else repr(error)
    problem_by_rank = comm.allgather(problem)
    failed_ranks = [rank for rank, text in enumerate(problem_by_rank) if text]
    if failed_ranks:
        suffix = (
            "" if len(failed_ranks) == len(problem_by_rank) else f" (on rank {failed_ranks[0]})"
        )
        raise CannotRunError(problem_by_rank[failed_ranks[0]] + suffix) from cause
    return result
