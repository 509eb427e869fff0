"""A model over many ranks: steps of training, and evaluations."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from mpi4py import MPI
from torch import nn

from spbench_workers.layout_models import ModelLayout, Place
from spbench_workers.models.build import build_stage, free
from spbench_workers.models.kit import ModuleKit, TileKit, WholeKit
from spbench_workers.parallel.balance import layer_ranges
from spbench_workers.parallel.joints import ends_of
from spbench_workers.parallel.learner import Learner
from spbench_workers.parallel.member_norm import MemberKit
from spbench_workers.parallel.orders import step_orders
from spbench_workers.parallel.phases import Phases
from spbench_workers.parallel.plan import Learning, Plan
from spbench_workers.parallel.schedules import Task
from spbench_workers.parallel.stage_runner import Source, StageRunner, part_of
from spbench_workers.spatial.tiling import Tiling


class Engine:
    """This rank's stages, one in each direction, and the steps that they take.

    All ranks of the communicator must make it, and call each method, together.

    Args:
        world: The ranks of the layout, and no others.
        plan: What is computed, and where.
        source: Where images and classes come from.
        learning: None, where nothing is to be learnt.
        keeps_input_gradients: Whether gradients of the images are computed and kept.

    Attributes:
        places: Where this rank stands, by direction.
        stages: Its modules, by direction.
        runners: What runs them, by direction.
        phases: Where the time went, of all steps and evaluations.

    Raises:
        ValueError: The communicator has not as many ranks as the layout.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        plan: Plan,
        source: Source,
        learning: Learning | None = None,
        *,
        keeps_input_gradients: bool = False,
    ) -> None:
        if world.size != plan.layout.ranks:
            raise ValueError(f"the layout has {plan.layout.ranks} ranks, the job {world.size}")
        self.plan, self._world = plan, world
        self.phases = Phases(plan.device)
        self.places = plan.layout.places(world.rank)
        self._joints = world.Dup()
        self._beside = [_beside(world, plan.layout, place) for place in self.places]
        self.stages = tuple(
            _stage(plan, place, comm) for place, comm in zip(self.places, self._beside, strict=True)
        )
        self.runners = tuple(
            self._runner(place, stage, source, keeps_input_gradients)
            for place, stage in zip(self.places, self.stages, strict=True)
        )
        self._learner = None
        if learning is not None:
            pairs = list(zip(self.places, self.stages, strict=True))
            self._learner = Learner(world, plan.layout, learning, pairs, len(plan.batches))
        self._orders = {
            learns: self._order(learns)
            for learns in ((False, True) if learning is not None else (False,))
        }

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to other stages."""
        return sum(runner.traffic[0] for runner in self.runners)

    @property
    def messages_sent(self) -> int:
        """Messages that this rank has sent to other stages."""
        return sum(runner.traffic[1] for runner in self.runners)

    def step(self) -> None:
        """Learn from a step's images once.

        Raises:
            ValueError: The engine was made to learn nothing.
        """
        learner = self._learner
        if learner is None:
            raise ValueError("this engine learns nothing; give it a Learning")
        with self.phases.step():
            learner.begin()
            self._work(self._orders[True], learner)
            with self.phases.of("allreduce"):
                learner.sum()
            with self.phases.of("optimizer"):
                learner.update()

    def evaluate(self) -> Mapping[int, torch.Tensor]:
        """Infer a step's images; return logits by micro-batch, on ranks of the last stage."""
        with self.phases.step():
            self._work(self._orders[False], None)
        return {key: one for runner in self.runners for key, one in runner.logits.items()}

    def end_epoch(self) -> None:
        """Let the learning rate decay."""
        if self._learner is not None:
            self._learner.end_epoch()

    def loss(self) -> float:
        """Return the last step's loss: the mean over the images of all replicas."""
        # Every tile has the loss of the whole image: one of them counts.
        own = sum(
            runner.loss
            for place, runner in zip(self.places, self.runners, strict=True)
            if place.tile == 0
        )
        total: float = self._world.allreduce(own)
        return total / self.plan.layout.replicas

    def free(self) -> None:
        """Give back what MPI holds for it."""
        for stage in self.stages:
            free(stage)
        for comm in (self._joints, *self._beside):
            comm.Free()
        if self._learner is not None:
            self._learner.free()

    def _runner(
        self, place: Place, stage: nn.Module, source: Source, keeps_input_gradients: bool
    ) -> StageRunner:
        plan = self.plan
        own, (data,) = plan.layout.stages[place.stage], plan.model.flows[0]
        return StageRunner(
            stage,
            ends_of(self._joints, plan, place),
            part_of(
                place.replica,
                place.member,
                own.members,
                own.grid.tile(place.tile, data.height, data.width),
                plan.batches,
            ),
            source,
            self.phases,
            keeps_input_gradients=keeps_input_gradients,
        )

    def _order(self, learns: bool) -> tuple[Task, ...]:
        plan = self.plan
        orders = step_orders(plan.layout, plan.batches, plan.schedule, forward_only=not learns)
        return orders[self._world.rank % plan.layout.ranks_a_replica]

    def _work(self, order: tuple[Task, ...], learner: Learner | None) -> None:
        for runner in self.runners:
            runner.begin(learns=learner is not None)
        for task in order:
            runner = self.runners[task.direction]
            if learner is None:
                runner.infer(task.micro_batch)
            elif task.kind == "forward":
                learner.pass_others(task.direction, task.micro_batch)
                runner.forward(task.micro_batch)
            else:
                runner.backward(task.micro_batch)
        for runner in self.runners:
            runner.finish()


def _beside(world: MPI.Intracomm, layout: ModelLayout, place: Place) -> MPI.Intracomm:
    """Return the ranks that share this rank's images, in the order of tiles or members."""
    everyone = world.Get_group()
    group = everyone.Incl(layout.ranks_of(place.stage, place.replica, place.direction))
    comm = world.Create_group(group)
    group.Free()
    everyone.Free()
    return comm


def _stage(plan: Plan, place: Place, comm: MPI.Intracomm) -> nn.Sequential:
    first, last = layer_ranges(plan.balance)[place.stage]
    return build_stage(
        plan.model,
        first,
        last,
        _kit(plan, place, comm),
        seed=plan.seed,
        device=plan.device,
        dtype=plan.dtype,
    )


def _kit(plan: Plan, place: Place, comm: MPI.Intracomm) -> ModuleKit:
    own, image = plan.layout.stages[place.stage], plan.model.image
    if own.spatial:
        tiling = Tiling.of_grid(comm, own.grid, image.height, image.width, transport=plan.transport)
        return TileKit(tiling)
    return MemberKit(comm) if own.members > 1 else WholeKit()
