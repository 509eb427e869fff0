"""A network of the user's own, trained over stages, tiles and replicas by a script of their own."""

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
from spbench_core.layout.balance import balance_layers, check_stages, read_balance
from spbench_core.layout.stages import ModelLayout, build_layout
from spbench_core.layout.tiles import Box, Grid, Interval, parse_pair
from spbench_core.layout.window import expand_pair
from spbench_core.models.parts import Map
from spbench_core.schedule.orders import ZERO_BUBBLE
from spbench_parallel.autotune.balance import check_balance, move_ends_to_maps
from spbench_parallel.autotune.skips import choose_skips
from spbench_parallel.checkpoints import state_dict
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.losses import CROSS_ENTROPY, DICE
from spbench_parallel.models.imported.layouts import BatchSettings, check_layout
from spbench_parallel.models.imported.model import build_model
from spbench_parallel.models.imported.tracing import trace_network
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.same_operators import check_same_operators
from spbench_parallel.validation.module_check import check_against_module

Load = Callable[[int, range, Box], torch.Tensor]
"""Returns pixels or targets: of a step, of some of its images by number, of a box of each.

Pixels are ``images x channels x rows x cols``. Targets are classes in int64: ``images``, or of the
box ``images x rows x cols`` for a network that tells the classes of pixels.
"""
_CHANNELS = 3
_KNOWN: dict[str, tuple[str | bool | None, ...]] = {
    "schedule": ("1f1b", "gpipe", "1f1b-deep", ZERO_BUBBLE),
    "loss": (CROSS_ENTROPY, DICE),
    "optimizer": ("sgd", "adam", "adamw"),
    "precision": ("fp32", "fp64", "bf16", "fp16"),
    "recompute": (None, "stage", "block"),
    "skips": ("auto", "straight", "along"),
    "verify": (True, False, "full"),
}
"""Arguments that are one of several words."""


class ParallelNetwork:
    """A network of one's own over the ranks of a communicator, which trains step by step.

    All ranks must make it, of a module with the same weights, and call its methods together. A rank
    asks for its own part of images alone.

    Args:
        module: The network, which knows nothing of spbench: see docs/own_networks.md.
        image_size: Height and width of images, which have three channels.
        pixels: Gives the pixels.
        targets: Gives the classes.
        batch_size: Images of a step of one replica. Replica 1 has those from ``batch_size`` on.
        stages: Stages of the pipeline.
        grids: The tiles of the first stages, as ``["2x2"]``; none: all stages have whole images.
        members: Ranks that share the images of each stage without tiles.
        replicas: Copies of all stages, each with images of its own.
        micro_batches: Parts of a batch, which follow each other through the stages.
        balance: Layers of each stage; None: by their multiply-adds.
        schedule: ``1f1b``, ``gpipe``, ``1f1b-deep`` or ``zb-h1``.
        loss: ``cross_entropy``, or ``dice`` of classes of pixels.
        optimizer: ``sgd`` (with a momentum of 0.9), ``adam`` or ``adamw``.
        learning_rate: Its rate.
        weight_decay: As in torch.
        precision: ``fp32``, ``fp64``, ``bf16`` or ``fp16``.
        recompute: The activations that are computed again in the backward pass, ``stage`` or
            ``block``; None: all are kept.
        skips: Whether tensors that a later stage than the next one reads go ``straight`` there, or
            ``along`` from stage to stage; ``auto`` times messages and takes what costs less.
        verify: Whether two training steps over the ranks are compared with the module on one
            process, before the first step: at the smallest size that the layout allows, or with
            ``full`` at that of the training. Weights and random numbers are not changed by it.
        seed: The seed of dropout.
        device: The device of this rank.
        comm: The ranks.

    Attributes:
        layout: The ranks' places.
        verified: A description of the comparison with the module; None without one.

    Raises:
        CannotRunError: There are not as many ranks as the layout has, an argument cannot be, the
            weights differ from rank to rank, the network cannot be imported, or its losses or
            weights differ from those of the module on one process.
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
        _check_weights(module, comm)
        model = build_model(
            trace_network(type(module).__name__, module, Map(_CHANNELS, *expand_pair(image_size)))
        )
        check_same_operators(comm, model.network)
        self.layout = _layout(stages, grids, members, replicas, comm)
        costs = [float(count.multiply_adds) for count in model.counts]
        ranks = [stage.ranks for stage in self.layout.stages]
        try:
            _check_words(
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
            check_stages(stages, len(costs))
            most = max(stage.members for stage in self.layout.stages)
            batches.check_batch_size(batch_size, micro_batches, mirrored=False, members=most)
            layers = (
                balance_layers(costs, ranks)
                if balance is None
                else read_balance(",".join(map(str, balance)), stages, len(costs))
            )
        except ValueError as error:
            raise CannotRunError(f"rank {comm.rank}: {error}") from None
        plan = ModelPlan(
            model,
            self.layout,
            layers,
            batches.split_batch(batch_size, micro_batches),
            schedule=schedule,
            seed=seed,
            device=torch.device(device),
            precision=PRECISIONS[precision],
            loss=loss,
            recompute=recompute,
        )
        plan = _with_maps(plan, comm.rank, asked=balance is not None)
        batching = BatchSettings(len(plan.batches), recomputes=recompute is not None)
        check_layout(model, self.layout, plan.balance, batching)
        if stages > 1 and (found := choose_skips(comm, plan, skips)):
            plan = replace(plan, straight=found.straight)
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
        """Return the logits of a step's images, by micro-batch, on ranks of the last stage.

        Of a network that tells the classes of pixels, tiles have those of their own.
        """
        self._source.set_step(number)
        return dict(self._engine.evaluate())

    def save(self, path: str | Path) -> None:
        """Write the ``state_dict`` of the module, the same whatever the layout.

        Raises:
            CannotRunError: The file cannot be written; on all ranks.
        """
        state_dict.save(Path(path), self._engine)

    def free(self) -> None:
        """Free buffers and communicators."""
        self._engine.free()


class _Source:
    """The user's images as stage runners ask for them."""

    def __init__(self, plan: ModelPlan, batch: int, pixels: Load, targets: Load, rank: int) -> None:
        self.step = 0
        self._plan = plan
        self._batch = batch
        self._rank = rank
        self._pixels = pixels
        self._targets = targets

    def set_step(self, step: int) -> None:
        """Give the images of a step from now on."""
        self.step = step

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        found = self._loaded("pixels", self._pixels, replica, images, box)
        self._check(found, (images[1] - images[0], _CHANNELS, *box.shape), "pixels")
        return found.to(self._plan.device, self._plan.dtype)

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""
        found = self._loaded("targets", self._targets, replica, images, box)
        sides = box.shape if self._plan.model.is_segmentation else ()
        self._check(found, (images[1] - images[0], *sides), "targets")
        return found.to(self._plan.device, torch.int64)

    def _loaded(
        self, word: str, load: Load, replica: int, images: Interval, box: Box
    ) -> torch.Tensor:
        numbers = range(replica * self._batch + images[0], replica * self._batch + images[1])
        try:
            return load(self.step, numbers, box)
        except Exception as error:  # it is the user's own code
            error.add_note(f"rank {self._rank} asked for {word} of {numbers} of step {self.step}")
            raise

    def _check(self, found: torch.Tensor, shape: tuple[int, ...], word: str) -> None:
        if tuple(found.shape) != shape:
            raise CannotRunError(
                f"rank {self._rank}: {word} have the shape {list(found.shape)}, and must have "
                f"{list(shape)}"
            )


def _check_words(**words: str | bool | None) -> None:
    """Refuse a word that is none of those that are known.

    Raises:
        ValueError: It is none.
    """
    for name, word in words.items():
        if word not in _KNOWN[name]:
            raise ValueError(f"{name} {word!r} is none of {', '.join(map(str, _KNOWN[name]))}")


def _with_maps(plan: ModelPlan, rank: int, *, asked: bool) -> ModelPlan:
    """Return the plan whose stages of tiles end in maps, or earlier where no balance was asked for.

    Raises:
        CannotRunError: They cannot.
    """
    made = plan if asked else replace(plan, balance=move_ends_to_maps(plan, plan.balance))
    try:
        check_balance(made, made.balance)
    except ValueError as error:
        raise CannotRunError(f"rank {rank}: {error}") from None
    return made


def _check_schedule(schedule: str, recompute: str | None, *, tiled: bool) -> None:
    if schedule == ZERO_BUBBLE and (tiled or recompute is not None):
        what = "with grids" if tiled else "with recompute"
        raise ValueError(f"schedule {ZERO_BUBBLE} cannot be had {what}; take 1f1b")


def _layout(
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
    if layout.ranks != comm.size:
        raise CannotRunError(
            f"rank {comm.rank}: the layout has {layout.ranks} ranks, and there are {comm.size}: "
            f"start it with mpirun -n {layout.ranks}"
        )
    return layout


def _check_weights(module: nn.Module, comm: MPI.Intracomm) -> None:
    """Refuse a module whose weights are not those of rank 0. All ranks must call it."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        values = tensor.detach().cpu().reshape(-1).contiguous()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    digests = comm.allgather(digest.hexdigest())
    others = [rank for rank, one in enumerate(digests) if one != digests[0]]
    if others:
        raise CannotRunError(
            f"rank {others[0]}: its module has other weights than that of rank 0; call "
            "torch.manual_seed with the same seed on every rank before it is made, or load the "
            "same state_dict"
        )
