"""A model over many ranks: training steps and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import RankCoordinates
from spbench_core.schedule.orders import ZERO_BUBBLE, Task
from spbench_core.schedule.step import list_step_orders
from spbench_parallel.device.formats import set_memory_format
from spbench_parallel.losses import Loss
from spbench_parallel.p2p.opening import open_p2p
from spbench_parallel.pipeline.building import build_local_stage
from spbench_parallel.pipeline.phases import create_phases
from spbench_parallel.pipeline.recomputation import enable_recomputation
from spbench_parallel.pipeline.stage_io import message_tags, open_stage_io
from spbench_parallel.pipeline.stage_runner import ImageReader, StageRunner, select_images
from spbench_parallel.pipeline.warm_up import SilentP2P, warm_up
from spbench_parallel.plan import ModelPlan, TrainingConfig, check_fused
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.precision.int8 import Ranges
from spbench_parallel.training.trainer import Trainer

Logits = Mapping[int, torch.Tensor]
"""A step's logits by micro-batch, on ranks of the last stage."""


class Engine:
    """The engine of a rank: its stages, one per direction and round, and their steps.

    All ranks of the communicator must create it together, and call each method together.

    Args:
        world: The ranks of the layout, and no others.
        plan: The model, its layout and its micro-batches.
        source: Provides images and targets.
        training: None for inference.
        keeps_input_gradients: Whether gradients of the images are computed and kept.

    Attributes:
        coordinates: This rank's coordinates in the layout, by direction or by round.
        stages: The modules of the stages, one for each of `coordinates`.
        runners: The runners of the stages, one for each of `coordinates`.
        arithmetic: The number format of their computations.
        phases: The time of each phase, over all steps and evaluations.

    Raises:
        ValueError: The communicator and the layout differ in size, or training is in int8.
        ModelError: No tiled stage has as many layers as are to be fused.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        plan: ModelPlan,
        source: ImageReader,
        training: TrainingConfig | None = None,
        *,
        keeps_input_gradients: bool = False,
    ) -> None:
        if world.size != plan.layout.rank_count:
            raise ValueError(f"the layout has {plan.layout.rank_count} ranks, the job {world.size}")
        check_fused(plan)
        self.plan = plan
        self._world = world
        self._source = source
        self._learns = training is not None
        self._keeps_input_gradients = keeps_input_gradients
        self.phases = create_phases(plan.device)
        self.coordinates = plan.layout.list_coordinates(world.rank)

        # The order from here on is an MPI protocol. Steps 1, 2, 3, 5 and 6 communicate, so that a
        # rank which runs them in another order waits for a call that no other rank makes.
        #
        # 1. All ranks duplicate the communicator, which separates messages between stages from
        #    those of training.
        self._stage_comm = world.Dup()

        # 2. All ranks open the transport. NCCL connects each pair of ranks here, because the first
        #    message between two ranks waits for both of them.
        self._p2p = open_p2p(
            plan.backend, self._stage_comm, plan.device, message_tags(plan.layout, plan.routes())
        )

        # 3. The ranks of each stage create its communicator and build its module. Every rank goes
        #    through its coordinates in the same order: by direction, or by round.
        self._built = [
            build_local_stage(world, plan, coordinates) for coordinates in self.coordinates
        ]
        self.stages = tuple(built.module for built in self._built)
        self._tiles = [
            built.comms[0] if plan.layout.stages[coordinates.stage].spatial else None
            for built, coordinates in zip(self._built, self.coordinates, strict=True)
        ]

        # 4. Local: memory format, number format and recomputation. Weights must be in their final
        #    memory before the trainer makes views of flat tensors of them.
        for stage in self.stages:
            set_memory_format(stage, plan.memory_format)
        self.arithmetic = Arithmetic(
            world, plan.precision, self.stages, plan.device, learns=self._learns
        )
        for coordinates, stage in zip(self.coordinates, self.stages, strict=True):
            enable_recomputation(
                stage, plan.recomputation(coordinates.stage), self.arithmetic.activate
            )
        self.runners = tuple(
            self._create_runner(coordinates, stage, tiles)
            for coordinates, stage, tiles in zip(
                self.coordinates, self.stages, self._tiles, strict=True
            )
        )
        self._by_stage = {
            (coordinates.stage, coordinates.direction): runner
            for coordinates, runner in zip(self.coordinates, self.runners, strict=True)
        }

        # 5. Ranks that hold the same weights create their communicators, lesser key first, so that
        #    no two ranks wait in different groups for each other.
        self._trainer = None if training is None else self._create_trainer(training)
        self._orders = {learns: self._order(learns) for learns in {False, self._learns}}

        # 6. Last, and before any receive is posted: a pass through each stage over NCCL.
        if plan.backend == "nccl":
            self._warm_up()

    @property
    def world(self) -> MPI.Intracomm:
        """The ranks of the layout."""
        return self._world

    @property
    def trainer(self) -> Trainer | None:
        """The trainer of the stages; None for inference."""
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
        """Run a training step: forward and backward passes, sums, and the update.

        Raises:
            ValueError: The engine was created for inference.
        """
        trainer = self._trainer
        if trainer is None:
            raise ValueError("this engine learns nothing; give it a TrainingConfig")
        with self.phases.measure_step():
            trainer.begin()
            self._run_tasks(self._orders[True], trainer)
            with self.phases.measure("allreduce"):
                trainer.sum_gradients()
            with self.phases.measure("optimizer"):
                trainer.update_weights()
            with self.phases.measure("allreduce"):
                trainer.share_weights()

    def evaluate(self) -> Logits:
        """Infer a step's images; return logits by micro-batch, on ranks of the last stage."""
        with self.phases.measure_step():
            self._run_tasks(self._orders[False], None)
        return {index: logits for runner in self.runners for index, logits in runner.logits.items()}

    def targets(self) -> dict[int, torch.Tensor]:
        """Return the targets of a step by micro-batch, on ranks of the last stage.

        In segmentation, each tile has the classes of its pixels. Otherwise only the first tile has
        the classes of the images.
        """
        last_stage = len(self.plan.layout.stages) - 1
        return {
            index: runner.targets(index)
            for coordinates, runner in zip(self.coordinates, self.runners, strict=True)
            for index, batch in enumerate(self.plan.batches)
            if coordinates.stage == last_stage
            and self._counts_loss_of(coordinates)
            and batch.direction == coordinates.direction
        }

    def calibrate(self) -> Ranges:
        """Infer a step's images in fp32.

        Return the ranges of values that convolutions read. For inference in int8, pass the ranges
        of all ranks to `Arithmetic.quantise`.
        """
        with self.arithmetic.record_ranges() as ranges:
            self._run_tasks(self._orders[False], None)
        return ranges

    def begin_epoch(self) -> None:
        """Begin an epoch: its loss and accuracy are those of the steps from here on."""
        for runner in self.runners:
            runner.begin_epoch()

    def end_epoch(self) -> None:
        """Decay the learning rate."""
        if self._trainer is not None:
            self._trainer.end_epoch()

    def loss(self) -> float:
        """Return the last step's loss: the mean over the images of all replicas."""
        local_loss = sum(runner.loss for runner in self._runners_with_loss())
        total: float = self._world.allreduce(local_loss)
        return total / self.plan.layout.replicas

    def accuracy(self) -> float:
        """Return the share of the last step's images that are classified correctly."""
        local_correct = sum(runner.correct for runner in self._runners_with_loss())
        correct: int = self._world.allreduce(local_correct)
        return correct / self._images

    def epoch_means(self, steps: int) -> tuple[float, float]:
        """Return loss and accuracy over the ``steps`` steps of the epoch so far."""
        sums = [runner.epoch_sums for runner in self._runners_with_loss()]
        loss: float = self._world.allreduce(sum(loss for loss, _ in sums))
        correct: float = self._world.allreduce(sum(correct for _, correct in sums))
        return loss / (self.plan.layout.replicas * steps), correct / (self._images * steps)

    @property
    def _images(self) -> int:
        """Images of a step, of all replicas."""
        return sum(batch.size for batch in self.plan.batches) * self.plan.layout.replicas

    def _runners_with_loss(self) -> list[StageRunner]:
        pairs = zip(self.coordinates, self.runners, strict=True)
        return [runner for coordinates, runner in pairs if self._counts_loss_of(coordinates)]

    def _counts_loss_of(self, coordinates: RankCoordinates) -> bool:
        """Return whether the loss at these coordinates counts.

        Each tile has the whole loss of an image's class, so that only the first tile counts. In
        segmentation each tile has the loss of its pixels.
        """
        return coordinates.tile == 0 or self.plan.model.is_segmentation

    def free(self) -> None:
        """Free the communicators and buffers. All ranks must call it."""
        for built in self._built:
            built.free()
        # The transport before the communicator that it uses.
        self._p2p.free()
        self._stage_comm.Free()
        if self._trainer is not None:
            self._trainer.free()

    def _create_trainer(self, training: TrainingConfig) -> Trainer:
        plan = self.plan
        return Trainer(
            self._world,
            plan.layout,
            training,
            list(zip(self.coordinates, self.stages, strict=True)),
            plan.batches,
            self.arithmetic.loss_scale,
            master_comm=plan.master_comm,
            grouped=plan.backend == "nccl",
        )

    def _warm_up(self) -> None:
        """Run a first pass through each stage, in the order of coordinates."""
        for coordinates, stage, tiles in zip(
            self.coordinates, self.stages, self._tiles, strict=True
        ):
            warm_up(
                stage,
                partial(self._create_runner, coordinates, stage, tiles, silent=True),
                coordinates.direction,
                self.plan.batches,
                learns=self._learns,
            )

    def _create_runner(
        self,
        coordinates: RankCoordinates,
        stage: nn.Module,
        tiles: MPI.Intracomm | None,
        *,
        silent: bool = False,
    ) -> StageRunner:
        """Return the runner of a stage; a silent one sends no messages and counts no time."""
        plan = self.plan
        layout_stage = plan.layout.stages[coordinates.stage]
        (image_map,) = plan.model.flows[0]
        p2p = SilentP2P(self._p2p.on_device) if silent else self._p2p
        return StageRunner(
            stage,
            open_stage_io(p2p, plan, coordinates),
            select_images(
                coordinates.replica,
                coordinates.member,
                layout_stage.members,
                layout_stage.grid.tile(coordinates.tile, image_map.height, image_map.width),
                plan.batches,
                plan.seed,
            ),
            self._source,
            create_phases(plan.device) if silent else self.phases,
            self.arithmetic,
            keeps_input_gradients=self._keeps_input_gradients,
            memory_format=plan.memory_format,
            defers_weight_grad=plan.schedule == ZERO_BUBBLE,
            loss=Loss(plan.loss, plan.model.targets_per_image, tiles),
        )

    def _order(self, learns: bool) -> tuple[Task, ...]:
        plan = self.plan
        orders = list_step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
        return orders[self._world.rank % plan.layout.ranks_per_replica]

    def _run_tasks(self, order: tuple[Task, ...], trainer: Trainer | None) -> None:
        # First receives are posted before any task runs: the order of tasks relies on receives
        # that are posted ahead, so that ranks cannot deadlock.
        for runner in self.runners:
            runner.begin(learns=trainer is not None)
        for task in order:
            runner = self._by_stage[task.stage, task.direction]
            if trainer is None:
                runner.infer(task.micro_batch)
            elif task.kind == "forward":
                trainer.prepare_forward(task.direction, task.micro_batch)
                runner.forward(task.micro_batch)
            elif task.kind == "weights":
                runner.run_weight_backward(task.micro_batch)
            else:
                runner.backward(task.micro_batch)
                trainer.finish_backward(task.direction, task.micro_batch)
        for runner in self.runners:
            runner.finish()
