"""Validation of a model over many ranks against the same model on one process.

All ranks train `STEPS` steps on a small batch of synthetic images, and infer. Rank 0 does the same
by itself, in plain torch and in float64, and sends the results, tensor by tensor; each rank
compares the part that it has. The ranks compute in float64 for this, too, so that only rounding
remains; the reference itself tells how much of that there may be: it is computed once more, from
weights and images that are off by a few last bits. tf32 and int8 are compared once more as they
are: ranks may be somewhat farther from float64 than one process in that format.

In 16 bits that would say little: where rounding turns a ReLU, one process is as far off as values
are large. There `check_bits` holds a pipeline against one process in the same format, which adds
all up in the same order, and operators are checked one by one at full size.

On a GPU, which may multiply fp32 in two ways, `check_products` compares single products besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from mpi4py import MPI

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import RankCoordinates
from spbench_parallel.checkpoints.state_dict import iterate_entries
from spbench_parallel.device.memory import release_memory
from spbench_parallel.engine import Engine
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan, TrainingConfig, put_on_one_process
from spbench_parallel.precision.formats import FP64
from spbench_parallel.progress import PhaseProgress, Progress
from spbench_parallel.synthetic import synthetic_images
from spbench_parallel.validation.comparison import Cut, TensorPart, compare, largest_change
from spbench_parallel.validation.finite_differences import compare_slopes
from spbench_parallel.validation.reference import (
    KINDS,
    NOISE,
    STEPS,
    ReferenceModel,
    ResultKey,
    Results,
    ResultTensors,
    small_rate,
)
from spbench_workers.context import Context

MIN_TOLERANCE = 1e-10
"""The least tolerance in float64, over the largest value of the kind: sums are added in other parts
than on one rank."""
SLACK = 100.0
"""The factor by which rounding may do more in the whole model than in its weights and images."""
MAX_TOLERANCE = 1e-6
MAX_MOVE = MAX_TOLERANCE / 10.0
"""The farthest that rounding may move results: beyond it a right model may miss the tolerance."""
VALIDATION_SCALE = 2.0**8
"""The scale of the loss in fp16 while ranks are compared."""
FORMAT_SLACK = 2.0
"""The factor by which many ranks may be farther from float64 than one process, in fewer bits: all
differences together, since single ones are as large as the values, where rounding turns a ReLU."""

ResultParts = dict[str, dict[ResultKey, TensorPart]]
"""By kind, as in `Results`, and key."""


def make_plans(plan: ModelPlan) -> tuple[ModelPlan, ...]:
    """Return the plan in the formats that are compared: float64, and its own if tf32 or int8."""
    exact = replace(plan, precision=FP64)
    return (exact, plan) if plan.precision.tf32 or plan.precision.int8 else (exact,)


class Validation:
    """The comparison in one format. All ranks must make it, and run it, together.

    Args:
        context: The case.
        plan: The model, with the micro-batches of the small batch, in fp64 or in the format of the
            run.
        training: None for inference alone.
        spoil: Plants the fault that ``--inject`` asks for.
        ready: Called with a fresh engine, before it works.
    """

    def __init__(
        self,
        context: Context,
        plan: ModelPlan,
        training: TrainingConfig | None,
        spoil: Callable[[Context, Engine], None],
        ready: Callable[[Engine], None],
    ) -> None:
        self._context = context
        self._training = training
        self._spoil = spoil
        self._ready = ready
        self._plan = plan
        self._exact = plan.precision is FP64
        self._comm: MPI.Intracomm = context.world.comm
        steps = 1 if training is None else STEPS + 1
        of_reference = steps * len(plan.batches) * plan.layout.replicas
        self._by_rank_0 = 2 * of_reference if self._exact else of_reference + steps
        self._progress = PhaseProgress(partial(context.progress, "check"), self._by_rank_0 + steps)

    def run(self) -> None:
        """Compare, and report the checks."""
        context = self._context
        wanted = Results()
        tolerances = dict.fromkeys(KINDS, 0.0)
        if self._comm.rank == 0:
            wanted, tolerances = self._reference()
            release_memory()
        sleep_at_barrier(self._comm)
        self._training = self._comm.bcast(self._training)
        self._progress.reach(self._by_rank_0)
        found = self._found(self._comm, self._plan, self._spoil)
        checks = context.entry.list_checks(context.params)
        tolerances = self._comm.bcast(tolerances)
        for kind in KINDS:
            if kind not in checks:
                continue
            error, where = self._distance(kind, wanted, found)
            context.check(kind, error, tolerances[kind], where)
        if "slope" in checks and self._exact:
            gradients = {str(name): part.values.double() for (name,), part in found["grad"].items()}
            slopes = compare_slopes(self._plan, self._images(FP64.work), gradients)
            context.check_worst("slope", slopes)
        self._progress.finish()

    def _images(self, dtype: torch.dtype) -> SyntheticImages:
        return synthetic_images(self._plan, self._context.seed_for("validation"), dtype)

    def _expected(self, noise: float = 0.0) -> Results:
        images = self._images(FP64.work)
        return ReferenceModel(
            self._plan, images, self._training, noise=noise, progress=self._progress
        ).compute_results()

    def _reference(self) -> tuple[Results, dict[str, float]]:
        """Return the reference, and by kind the tolerances: distances from it over its largest.

        Where rounding alone moves it farther than may be, small steps are compared in place of the
        optimizer's own: Adam makes of a gradient that is nothing but rounding a whole step.
        """
        wanted = self._expected()
        if not self._exact:
            return wanted, self._tolerances(wanted)
        moves = self._moves(wanted)
        if self._training is not None and max(moves.values()) > MAX_MOVE:
            self._training = self._small_steps(wanted, moves)
            self._progress.lengthen(self._by_rank_0)
            self._by_rank_0 *= 2
            wanted = self._expected()
            moves = self._moves(wanted)
        return wanted, {
            kind: min(MAX_TOLERANCE, max(MIN_TOLERANCE, SLACK * error))
            for kind, error in moves.items()
        }

    def _moves(self, wanted: Results) -> dict[str, float]:
        """Return by kind how far rounding may move the reference."""
        other = self._expected(NOISE)
        return {kind: largest_change(getattr(wanted, kind), getattr(other, kind)) for kind in KINDS}

    def _small_steps(self, wanted: Results, moves: dict[str, float]) -> TrainingConfig:
        """Return an optimizer whose steps are in proportion to gradients, and small."""
        assert self._training is not None, "it learns"
        kind = max(moves, key=lambda kind: moves[kind])
        self._context.choice(
            "compared_steps",
            "sgd",
            f"with {self._training.optimizer} rounding alone moves {kind} by {moves[kind]:.1e} of "
            "the largest",
        )
        return TrainingConfig("sgd", small_rate(wanted.weights.values(), wanted.grad.values()))

    def _tolerances(self, wanted: Results) -> dict[str, float]:
        """Return the tolerances by kind in a format of fewer bits."""
        found = self._alone()
        errors = {
            kind: self._compare(MPI.COMM_SELF, getattr(wanted, kind), found.get(kind, {}))[0]
            for kind in KINDS
        }
        least = self._plan.precision.epsilon
        return {kind: min(1.0, FORMAT_SLACK * max(error, least)) for kind, error in errors.items()}

    def _compare(
        self, comm: MPI.Intracomm, wanted: ResultTensors, found: dict[ResultKey, TensorPart]
    ) -> tuple[float, str]:
        return compare(comm, wanted, found, mean_square=not self._exact)

    def _distance(self, kind: str, wanted: Results, found: ResultParts) -> tuple[float, str]:
        """Return how far this rank's results of a kind are off, and where."""
        expected = getattr(wanted, kind)
        parts = found.get(kind, {})
        if kind != "state":
            return self._compare(self._comm, expected, parts)
        # Rank 0 has the entries of all ranks, as it writes them to files.
        here = self._comm.rank == 0
        result = self._compare(MPI.COMM_SELF, expected, parts) if here else None
        error, where = self._comm.bcast(result)
        return float(error), str(where)

    def _alone(self) -> ResultParts:
        """Return one process' results in the format of the run, one replica's images at a time."""
        return self._found(MPI.COMM_SELF, put_on_one_process(self._plan), lambda *_: None)

    def _found(
        self, comm: MPI.Intracomm, plan: ModelPlan, spoil: Callable[[Context, Engine], None]
    ) -> ResultParts:
        """Return this rank's parts of the results, after the same steps."""

        def prepare(engine: Engine) -> None:
            self._ready(engine)
            spoil(self._context, engine)

        images = self._images(plan.dtype)
        return collect_parts(comm, plan, self._training, images, prepare, self._progress)


def collect_parts(
    comm: MPI.Intracomm,
    plan: ModelPlan,
    training: TrainingConfig | None,
    images: SyntheticImages,
    prepare: Callable[[Engine], None],
    progress: Progress,
) -> ResultParts:
    """Return this rank's parts of the results of some steps. All ranks must call it."""
    learns = training is not None
    engine = Engine(comm, plan, images, training, keeps_input_gradients=learns)
    if engine.arithmetic.loss_scale is not None:
        # The first steps at the usual scale are often skipped: nothing could be compared.
        engine.arithmetic.loss_scale.value = VALIDATION_SCALE
    prepare(engine)
    found = _learn(engine, images, progress) if learns else {}
    engine.evaluate()
    progress.advance()
    found["output"] = _outputs(engine)
    engine.free()
    return found


def _learn(engine: Engine, images: SyntheticImages, progress: Progress) -> ResultParts:
    found: ResultParts = {"loss": {}}
    for step in range(STEPS):
        images.set_step(step)
        engine.step()
        if step == 0:
            found["input_grad"] = _input_gradients(engine)
            found["grad"] = _gradients(engine)
        loss = torch.tensor(engine.loss(), dtype=torch.float64)
        found["loss"][(step,)] = TensorPart(loss)
        engine.end_epoch()
        progress.advance()
    found["weights"] = {
        (name,): TensorPart(parameter.detach())
        for stage in engine.stages
        for name, parameter in stage.named_parameters()
    }
    found["running_stats"] = {
        (place.replica, name): TensorPart(value)
        for place, stage in zip(engine.coordinates, engine.stages, strict=True)
        for name, value in stage.named_buffers()
    }
    found["state"] = {(name,): TensorPart(value.clone()) for name, value in iterate_entries(engine)}
    return found


def _gradients(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (name,): TensorPart(parameter.grad.clone())
        # With master_comm, direction 0 has only a share of them.
        for stage in engine.stages[engine.plan.owner :]
        for name, parameter in stage.named_parameters()
        if parameter.grad is not None
    }


def _input_gradients(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (place.replica, index): TensorPart(
            gradient, _pixel_cut(engine.plan, place, engine.plan.batches[index])
        )
        for place, runner in zip(engine.coordinates, engine.runners, strict=True)
        for index, gradient in runner.image_gradients.items()
    }


def _outputs(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (place.replica, index): TensorPart(
            logits, _output_cut(engine.plan, place, engine.plan.batches[index])
        )
        for place, runner in zip(engine.coordinates, engine.runners, strict=True)
        for index, logits in runner.logits.items()
    }


def _output_cut(plan: ModelPlan, place: RankCoordinates, batch: MicroBatch) -> Cut:
    """Return the slices of a rank's logits in those of a micro-batch."""
    return (
        _pixel_cut(plan, place, batch)
        if plan.model.is_segmentation
        else (_share(plan, place, batch),)
    )


def _pixel_cut(plan: ModelPlan, place: RankCoordinates, batch: MicroBatch) -> Cut:
    """Return the slices of a rank's pixels in the images of a micro-batch."""
    image = plan.model.image
    grid = plan.layout.stages[place.stage].grid
    box = grid.tile(place.tile, image.height, image.width)
    return _share(plan, place, batch), slice(None), slice(*box.rows), slice(*box.cols)


def _share(plan: ModelPlan, place: RankCoordinates, batch: MicroBatch) -> slice:
    """Return the slice of a rank's images in a micro-batch."""
    first, last = batch.member_images(place.member, plan.layout.stages[place.stage].members)
    return slice(first - batch.images[0], last - batch.images[0])
