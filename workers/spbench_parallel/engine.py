"""A model over many ranks: steps of training, and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import Place
from spbench_core.schedule.orders import ZERO_BUBBLE, Task
from spbench_core.schedule.step import step_orders
from spbench_parallel.device.memory_format import set_memory_format
from spbench_parallel.losses import Loss
from spbench_parallel.p2p.opening import open_p2p
from spbench_parallel.pipeline.building import build
from spbench_parallel.pipeline.phases import phases_of
from spbench_parallel.pipeline.recomputation import recompute
from spbench_parallel.pipeline.stage_io import stage_io_of, tags_of
from spbench_parallel.pipeline.stage_runner import ImageSource, StageRunner, part_of
from spbench_parallel.pipeline.warm_up import SilentP2P, warm_up
from spbench_parallel.plan import ModelPlan, TrainingConfig, check_fused
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.precision.int8 import Ranges
from spbench_parallel.training.trainer import Trainer

Logits = Mapping[int, torch.Tensor]
"""A step's logits by micro-batch, on ranks of the last stage."""


class Engine:
    """The engine of a rank: its stages, one in each direction and round, and their steps.

    All ranks of the communicator must make it, and call each method, together.

    Args:
        world: The ranks of the layout, and no others.
        plan: The model, its layout and its micro-batches.
        source: Gives images and targets.
        training: None for inference alone.
        keeps_input_gradients: Whether gradients of the images are computed and kept.

    Attributes:
        places: This rank's places, by direction, or by round.
        stages: The stages' modules, one a place.
        runners: The runners of the stages, one a place.
        arithmetic: The number format of their computations.
        phases: The time of each phase, over all steps and evaluations.

    Raises:
        ValueError: The communicator has not as many ranks as the layout, or training is in int8.
        ModelError: No stage of tiles has as many layers as are to be fused.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        plan: ModelPlan,
        source: ImageSource,
        training: TrainingConfig | None = None,
        *,
        keeps_input_gradients: bool = False,
    ) -> None:
        if world.size != plan.layout.ranks:
            raise ValueError(f"the layout has {plan.layout.ranks} ranks, the job {world.size}")
        check_fused(plan)
        self.plan = plan
        self._world = world
        self.phases = phases_of(plan.device)
        self.places = plan.layout.places(world.rank)
        self._stage_comm = world.Dup()
        self._p2p = open_p2p(
            plan.backend, self._stage_comm, plan.device, tags_of(plan.layout, plan.routes())
        )
        self._built = [build(world, plan, place) for place in self.places]
        self.stages = tuple(built.module for built in self._built)
        self._tiles = [
            built.comms[0] if plan.layout.stages[place.stage].spatial else None
            for built, place in zip(self._built, self.places, strict=True)
        ]
        for stage in self.stages:
            set_memory_format(stage, plan.memory_format)
        self.arithmetic = Arithmetic(
            world, plan.precision, self.stages, plan.device, learns=training is not None
        )
        for place, stage in zip(self.places, self.stages, strict=True):
            recompute(stage, plan.recomputed(place.stage), self.arithmetic.entered)
        self.runners = tuple(
            self._runner(place, stage, comm, source, keeps_input_gradients)
            for place, stage, comm in zip(self.places, self.stages, self._tiles, strict=True)
        )
        self._by_stage = {
            (place.stage, place.direction): runner
            for place, runner in zip(self.places, self.runners, strict=True)
        }
        self._trainer = None
        if training is not None:
            pairs = list(zip(self.places, self.stages, strict=True))
            self._trainer = Trainer(
                world,
                plan.layout,
                training,
                pairs,
                plan.batches,
                self.arithmetic.loss_scale,
                master_comm=plan.master_comm,
                grouped=plan.backend == "nccl",
            )
        self._orders = {
            learns: self._order(learns)
            for learns in ((False, True) if training is not None else (False,))
        }
        if plan.backend == "nccl":
            self._warm_up(source, keeps_input_gradients)

    @property
    def world(self) -> MPI.Intracomm:
        """The ranks of the layout."""
        return self._world

    @property
    def trainer(self) -> Trainer | None:
        """The trainer of the stages; None for inference alone."""
        return self._trainer

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to other stages."""
        return sum(runner.traffic[0] for runner in self.runners)

    @property
    def messages_sent(self) -> int:
        """Messages that this rank has sent to other stages."""
        return sum(runner.traffic[1] for runner in self.runners)

    def stage(self, stage: int, direction: int = 0) -> nn.Module:
        """Return the module of a stage that this rank has.

        Raises:
            KeyError: The stage is not on this rank.
        """
        return self._by_stage[stage, direction].module

    def step(self) -> None:
        """Run a training step: forward and backward of all micro-batches, sums, and the update.

        Raises:
            ValueError: The engine was made for inference alone.
        """
        trainer = self._trainer
        if trainer is None:
            raise ValueError("this engine learns nothing; give it a TrainingConfig")
        with self.phases.step():
            trainer.begin()
            self._work(self._orders[True], trainer)
            with self.phases.of("allreduce"):
                trainer.sum()
            with self.phases.of("optimizer"):
                trainer.update()
            with self.phases.of("allreduce"):
                trainer.share()

    def evaluate(self) -> Logits:
        """Infer a step's images; return logits by micro-batch, on ranks of the last stage."""
        with self.phases.step():
            self._work(self._orders[False], None)
        return {key: one for runner in self.runners for key, one in runner.logits.items()}

    def targets(self) -> dict[int, torch.Tensor]:
        """Return the targets of a step's images by micro-batch, on ranks of the last stage.

        Where pixels have a class, each tile has those of its own; else the first tile alone has the
        images' classes.
        """
        last = len(self.plan.layout.stages) - 1
        return {
            index: runner.targets(index)
            for place, runner in zip(self.places, self.runners, strict=True)
            for index, batch in enumerate(self.plan.batches)
            if place.stage == last and self._counts(place) and batch.direction == place.direction
        }

    def calibrate(self) -> Ranges:
        """Infer a step's images in fp32; return the ranges of values that convolutions read.

        `Arithmetic.quantise` needs them, of all ranks, for inference in int8.
        """
        with self.arithmetic.recording() as ranges:
            self._work(self._orders[False], None)
        return ranges

    def begin_epoch(self) -> None:
        """Begin an epoch: its loss and accuracy are those of the steps from here on."""
        for runner in self.runners:
            runner.begin_epoch()

    def end_epoch(self) -> None:
        """Let the training rate decay."""
        if self._trainer is not None:
            self._trainer.end_epoch()

    def loss(self) -> float:
        """Return the last step's loss: the mean over the images of all replicas."""
        own = sum(runner.loss for runner in self._counting())
        total: float = self._world.allreduce(own)
        return total / self.plan.layout.replicas

    def accuracy(self) -> float:
        """Return the share of the last step's images whose class had the largest logit."""
        own = sum(runner.correct for runner in self._counting())
        correct: int = self._world.allreduce(own)
        return correct / self._images

    def epoch_means(self, steps: int) -> tuple[float, float]:
        """Return loss and accuracy over the images of the epoch so far, which has so many steps."""
        sums = [runner.epoch_sums for runner in self._counting()]
        loss: float = self._world.allreduce(sum(one for one, _ in sums))
        correct: float = self._world.allreduce(sum(one for _, one in sums))
        return loss / (self.plan.layout.replicas * steps), correct / (self._images * steps)

    @property
    def _images(self) -> int:
        """Images of a step, of all replicas."""
        return sum(batch.size for batch in self.plan.batches) * self.plan.layout.replicas

    def _counting(self) -> list[StageRunner]:
        """Return the runners whose losses count."""
        pairs = zip(self.places, self.runners, strict=True)
        return [runner for place, runner in pairs if self._counts(place)]

    def _counts(self, place: Place) -> bool:
        """Return whether a place's loss counts: of classes of images each tile has all of it."""
        return place.tile == 0 or self.plan.model.segments

    def free(self) -> None:
        """Free the communicators and buffers. All ranks must call it."""
        for built in self._built:
            built.free()
        self._p2p.free()
        self._stage_comm.Free()
        if self._trainer is not None:
            self._trainer.free()

    def _warm_up(self, source: ImageSource, keeps_input_gradients: bool) -> None:
        """Run a first pass through each stage, place by place, before any receive is posted."""
        for place, stage, comm in zip(self.places, self.stages, self._tiles, strict=True):
            words = place, stage, comm, source, keeps_input_gradients
            make = partial(self._runner, *words, silent=True)
            learns = self._trainer is not None
            warm_up(stage, make, place.direction, self.plan.batches, learns=learns)

    def _runner(
        self,
        place: Place,
        stage: nn.Module,
        tiles: MPI.Intracomm | None,
        source: ImageSource,
        keeps_input_gradients: bool,
        *,
        silent: bool = False,
    ) -> StageRunner:
        """Return the runner of a stage; a silent one sends no messages, and counts no time."""
        plan = self.plan
        own = plan.layout.stages[place.stage]
        (data,) = plan.model.flows[0]
        p2p = SilentP2P(self._p2p.on_device) if silent else self._p2p
        return StageRunner(
            stage,
            stage_io_of(p2p, plan, place),
            part_of(
                place.replica,
                place.member,
                own.members,
                own.grid.tile(place.tile, data.height, data.width),
                plan.batches,
                plan.seed,
            ),
            source,
            phases_of(plan.device) if silent else self.phases,
            self.arithmetic,
            keeps_input_gradients=keeps_input_gradients,
            memory_format=plan.memory_format,
            later_weights=plan.schedule == ZERO_BUBBLE,
            loss=Loss(plan.loss, plan.model.targets, tiles),
        )

    def _order(self, learns: bool) -> tuple[Task, ...]:
        plan = self.plan
        orders = step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
        return orders[self._world.rank % plan.layout.ranks_a_replica]

    def _work(self, order: tuple[Task, ...], trainer: Trainer | None) -> None:
        for runner in self.runners:
            runner.begin(learns=trainer is not None)
        for task in order:
            runner = self._by_stage[task.stage, task.direction]
            if trainer is None:
                runner.infer(task.micro_batch)
            elif task.kind == "forward":
                trainer.pass_others(task.direction, task.micro_batch)
                runner.forward(task.micro_batch)
            elif task.kind == "weights":
                runner.weights(task.micro_batch)
            else:
                runner.backward(task.micro_batch)
                trainer.end_backward(task.direction, task.micro_batch)
        for runner in self.runners:
            runner.finish()
