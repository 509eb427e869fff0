"""A user-defined network over stages, tiles and replicas, trained by a script."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout import micro_batches as batches
from spbench_core.layout.balance import Balance, balance_layers, check_stages, read_balance
from spbench_core.layout.stages import ModelLayout, build_layout
from spbench_core.layout.tiles import Box, Grid, Interval, parse_pair
from spbench_core.layout.window import expand_pair
from spbench_core.models.parts import MapShape
from spbench_core.schedule.orders import ZERO_BUBBLE
from spbench_parallel.autotune.balance import check_balance, move_ends_to_maps
from spbench_parallel.autotune.skips import choose_skips
from spbench_parallel.checkpoints import state_dict
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.losses import CROSS_ENTROPY, DICE
from spbench_parallel.models.imported.layouts import StepSettings, check_layout
from spbench_parallel.models.imported.model import ImportedModel, build_model
from spbench_parallel.models.imported.tracing import trace_network
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.same_operators import check_same_operators
from spbench_parallel.validation.module_check import check_against_module

Load = Callable[[int, range, Box], torch.Tensor]
"""Returns pixels or targets of a step, for some of its images by number, in a box of each.

Pixels are ``images x channels x rows x cols``. Targets are classes in int64: ``images``, or
``images x rows x cols`` for a segmentation network.
"""
_CHANNELS = 3
_CHOICES: dict[str, tuple[str | bool | None, ...]] = {
    "schedule": ("1f1b", "gpipe", "1f1b-deep", ZERO_BUBBLE),
    "loss": (CROSS_ENTROPY, DICE),
    "optimizer": ("sgd", "adam", "adamw"),
    "precision": ("fp32", "fp64", "bf16", "fp16"),
    "recompute": (None, "stage", "block"),
    "skips": ("auto", "straight", "along"),
    "verify": (True, False, "full"),
}
"""Arguments that are one of several names, with these names."""


class ParallelNetwork:
    """A user-defined network over the ranks of a communicator.

    All ranks must create it from a module with the same weights, and call its methods together. A
    rank only requests its own part of the images.

    Args:
        module: The network, which needs no knowledge of spbench: see docs/own_networks.md.
        image_size: Height and width of images, which have three channels.
        pixels: Returns the pixels.
        targets: Returns the classes.
        batch_size: Images of a step of one replica. The images of replica 1 begin with number
            ``batch_size``.
        stages: Stages of the pipeline.
        grids: The tiles of the first stages, such as ``["2x2"]`` (default: all stages have whole
            images).
        members: Ranks that share the images of each stage without tiles.
        replicas: Copies of all stages, each with different images.
        micro_batches: Parts of a batch, which follow each other through the stages.
        balance: Layers of each stage (default: balanced by their multiply-adds).
        schedule: ``1f1b``, ``gpipe``, ``1f1b-deep`` or ``zb-h1``.
        loss: ``cross_entropy``, or ``dice`` in segmentation.
        optimizer: ``sgd`` (with a momentum of 0.9), ``adam`` or ``adamw``.
        learning_rate: Its rate.
        weight_decay: The weight decay of torch's optimizers.
        precision: ``fp32``, ``fp64``, ``bf16`` or ``fp16``.
        recompute: The activations that are computed again in the backward pass, ``stage`` or
            ``block`` (default: all are kept).
        skips: Whether tensors that are read by a later stage than the next go ``straight`` there,
            or ``along`` from stage to stage. ``auto`` times messages and chooses the cheaper.
        verify: Whether two training steps over the ranks are compared with the module on one
            process, before the first step. They are compared at the smallest size that the layout
            allows, or with ``full`` at that of the training. Weights and random numbers do not
            change.
        seed: The seed of dropout.
        device: The device of this rank.
        comm: The ranks.

    Attributes:
        layout: The layout of the ranks.
        verified: A description of the comparison with the module; None without one.

    Raises:
        CannotRunError: The number of ranks is not that of the layout, an argument is invalid,
            weights differ between ranks, the network cannot be imported, or its losses or weights
            differ from those of the module on one process.
    """

    def __init__(
        self,
        module: nn.Module,
        image_size: int | tuple[int, int],
        pixels: Load,
        targets: Load,
        *,
        batch_size: int,
        stages: int = 1,
        grids: Sequence[str] = (),
        members: int | Sequence[int] = 1,
        replicas: int = 1,
        micro_batches: int = 1,
        balance: Sequence[int] | None = None,
        schedule: Literal["1f1b", "gpipe", "1f1b-deep", "zb-h1"] = "1f1b",
        loss: Literal["cross_entropy", "dice"] = "cross_entropy",
        optimizer: Literal["sgd", "adam", "adamw"] = "sgd",
        learning_rate: float = 0.001,
        weight_decay: float = 0.0,
        precision: Literal["fp32", "fp64", "bf16", "fp16"] = "fp32",
        recompute: Literal["stage", "block"] | None = None,
        skips: Literal["auto", "straight", "along"] = "auto",
        verify: bool | Literal["full"] = True,
        seed: int = 0,
        device: torch.device | str = "cpu",
        comm: MPI.Intracomm = MPI.COMM_WORLD,
    ) -> None:
        # All ranks must have the same weights and operators before they communicate: otherwise a
        # rank would wait for messages that no other rank sends.
        _check_weights(module, comm)
        model = build_model(
            trace_network(
                type(module).__name__, module, MapShape(_CHANNELS, *expand_pair(image_size))
            )
        )
        check_same_operators(comm, model.network)

        self.layout = _create_layout(stages, grids, members, replicas, comm)
        try:
            _check_choices(
                schedule=schedule,
                loss=loss,
                optimizer=optimizer,
                precision=precision,
                recompute=recompute,
                skips=skips,
                verify=verify,
            )
            _check_schedule(schedule, recompute, tiled=bool(grids))
            if loss == DICE and not model.is_segmentation:
                raise ValueError("loss dice is of pixels' classes, and the network tells images'")
            check_stages(stages, len(model.counts))
            max_members = max(stage.members for stage in self.layout.stages)
            batches.check_batch_size(batch_size, micro_batches, mirrored=False, members=max_members)
            layers_by_stage = _choose_balance(model, self.layout, balance)
        except ValueError as error:
            raise CannotRunError(f"rank {comm.rank}: {error}") from None

        plan = ModelPlan(
            model,
            self.layout,
            layers_by_stage,
            batches.split_batch(batch_size, micro_batches),
            schedule=schedule,
            seed=seed,
            device=torch.device(device),
            precision=PRECISIONS[precision],
            loss=loss,
            recompute=recompute,
        )

        plan = _end_stages_in_maps(plan, comm.rank, is_requested=balance is not None)
        step_settings = StepSettings(len(plan.batches), recomputes=recompute is not None)
        check_layout(model, self.layout, plan.balance, step_settings)
        if stages > 1 and (choice := choose_skips(comm, plan, skips)):
            plan = replace(plan, straight=choice.straight)

        # Before the engine: the comparison creates its own engine and frees it.
        self.verified: str | None = None
        if verify:
            self.verified = check_against_module(comm, plan, full=verify == "full")

        self._source = _Source(plan, batch_size, pixels, targets, comm.rank)
        training = TrainingConfig(optimizer, learning_rate, weight_decay)
        self._engine = Engine(comm, plan, self._source, training)

    def step(self, number: int) -> float:
        """Train on the images of a step; return the mean loss over them, on every rank."""
        self._source.set_step(number)
        self._engine.step()
        return self._engine.loss()

    def infer(self, number: int) -> dict[int, torch.Tensor]:
        """Return the logits of a step's images by micro-batch, on ranks of the last stage.

        In segmentation, each tile has the logits of its pixels.
        """
        self._source.set_step(number)
        return dict(self._engine.evaluate())

    def save(self, path: str | Path) -> None:
        """Write the ``state_dict`` of the module, which is the same in any layout.

        Raises:
            CannotRunError: The file cannot be written; on all ranks.
        """
        state_dict.save(Path(path), self._engine)

    def free(self) -> None:
        """Free buffers and communicators."""
        self._engine.free()


class _Source:
    """The user's images in the form that stage runners request."""

    def __init__(self, plan: ModelPlan, batch: int, pixels: Load, targets: Load, rank: int) -> None:
        self.step = 0
        self._plan = plan
        self._batch = batch
        self._rank = rank
        self._pixels = pixels
        self._targets = targets

    def set_step(self, step: int) -> None:
        """Set the step of the images."""
        self.step = step

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        pixels = self._load("pixels", self._pixels, replica, images, box)
        self._check_shape(pixels, (images[1] - images[0], _CHANNELS, *box.shape), "pixels")
        return pixels.to(self._plan.device, self._plan.dtype)

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each pixel of a box, in int64."""
        targets = self._load("targets", self._targets, replica, images, box)
        sides = box.shape if self._plan.model.is_segmentation else ()
        self._check_shape(targets, (images[1] - images[0], *sides), "targets")
        return targets.to(self._plan.device, torch.int64)

    def _load(
        self, label: str, load: Load, replica: int, images: Interval, box: Box
    ) -> torch.Tensor:
        numbers = range(replica * self._batch + images[0], replica * self._batch + images[1])
        try:
            return load(self.step, numbers, box)
        except Exception as error:  # of any kind, from the user's code
            error.add_note(f"rank {self._rank} asked for {label} of {numbers} of step {self.step}")
            raise

    def _check_shape(self, tensor: torch.Tensor, shape: tuple[int, ...], label: str) -> None:
        if tuple(tensor.shape) != shape:
            raise CannotRunError(
                f"rank {self._rank}: {label} have the shape {list(tensor.shape)}, and must have "
                f"{list(shape)}"
            )


def _check_choices(**arguments: str | bool | None) -> None:
    """Check arguments that are one of several names.

    Raises:
        ValueError: An argument is unknown.
    """
    for name, argument in arguments.items():
        if argument not in _CHOICES[name]:
            choices = ", ".join(map(str, _CHOICES[name]))
            raise ValueError(f"{name} {argument!r} is none of {choices}")


def _choose_balance(
    model: ImportedModel, layout: ModelLayout, balance: Sequence[int] | None
) -> Balance:
    """Return the layers of each stage: as requested, or balanced by multiply-adds.

    Raises:
        ValueError: The requested balance does not fit the layers.
    """
    if balance is not None:
        return read_balance(",".join(map(str, balance)), len(layout.stages), len(model.counts))
    costs = [float(count.multiply_adds) for count in model.counts]
    return balance_layers(costs, [stage.rank_count for stage in layout.stages])


def _end_stages_in_maps(plan: ModelPlan, rank: int, *, is_requested: bool) -> ModelPlan:
    """Return the plan with tiled stages that end in maps.

    Without a requested balance, they may end earlier.

    Raises:
        CannotRunError: A stage cannot end in maps.
    """
    adjusted = (
        plan if is_requested else replace(plan, balance=move_ends_to_maps(plan, plan.balance))
    )
    try:
        check_balance(adjusted, adjusted.balance)
    except ValueError as error:
        raise CannotRunError(f"rank {rank}: {error}") from None
    return adjusted


def _check_schedule(schedule: str, recompute: str | None, *, tiled: bool) -> None:
    if schedule == ZERO_BUBBLE and (tiled or recompute is not None):
        condition = "with grids" if tiled else "with recompute"
        raise ValueError(f"schedule {ZERO_BUBBLE} cannot be had {condition}; take 1f1b")


def _create_layout(
    stages: int,
    grids: Sequence[str],
    members: int | Sequence[int],
    replicas: int,
    comm: MPI.Intracomm,
) -> ModelLayout:
    try:
        tiles = [Grid(*parse_pair(grid)) for grid in grids]
        layout = build_layout(stages, tiles, members=members, replicas=replicas)
    except ValueError as error:
        raise CannotRunError(f"rank {comm.rank}: {error}") from None
    if layout.rank_count != comm.size:
        raise CannotRunError(
            f"rank {comm.rank}: the layout has {layout.rank_count} ranks, and there are "
            f"{comm.size}: start it with mpirun -n {layout.rank_count}"
        )
    return layout


def _check_weights(module: nn.Module, comm: MPI.Intracomm) -> None:
    """Check that a module has the weights of rank 0. All ranks must call it."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        values = tensor.detach().cpu().reshape(-1).contiguous()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    digests = comm.allgather(digest.hexdigest())
    different_ranks = [rank for rank, text in enumerate(digests) if text != digests[0]]
    if different_ranks:
        raise CannotRunError(
            f"rank {different_ranks[0]}: its module has other weights than that of rank 0; call "
            "torch.manual_seed with the same seed on every rank before it is made, or load the "
            "same state_dict"
        )
