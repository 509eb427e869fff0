"""Validation of a model over many ranks against the same model on one process.

All ranks train `STEPS` steps on a small batch of synthetic images, and infer. Rank 0 does the same
in plain torch and in float64, and sends the results tensor by tensor. Each rank compares its part.
The ranks also compute in float64, so that only rounding differs. The tolerance follows from a
second reference with weights and images that differ in the last bits. tf32 and int8 are also
compared in their format. There, ranks may be somewhat farther from float64 than one process.

In 16 bits this comparison is weak: if rounding flips a ReLU, one process is off by as much as the
values themselves. So `check_bits` compares a pipeline with one process in the same format that adds
in the same order, and operators are checked at full size. On a GPU, which may multiply fp32 in two
formats, `check_products` also compares single products (see `regime_checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from mpi4py import MPI

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import RankCoordinates
from spbench_parallel.checkpoints.state_dict import gather_state_dict
from spbench_parallel.device.memory import release_memory
from spbench_parallel.engine import Engine
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan, TrainingConfig, put_on_one_process
from spbench_parallel.precision.formats import FP64
from spbench_parallel.progress import PhaseProgress, Progress
from spbench_parallel.validation.comparison import Cut, TensorPart, compare, compute_largest_change
from spbench_parallel.validation.finite_differences import compare_slopes
from spbench_parallel.validation.reference import (
    KINDS,
    NOISE,
    STEPS,
    ReferenceModel,
    ResultKey,
    Results,
    ResultTensors,
    compute_small_rate,
    make_synthetic_images,
)
from spbench_workers.context import Context

MIN_TOLERANCE = 1e-10
"""Least tolerance in float64 over the largest value of the kind, because ranks add sums in
another order."""
SLACK = 100.0
"""Factor between rounding in the whole model and in its weights and images."""
MAX_TOLERANCE = 1e-6
MAX_CHANGE = MAX_TOLERANCE / 10.0
"""Largest change of results by rounding; beyond it a correct model may exceed the tolerance."""
VALIDATION_SCALE = 2.0**8
"""Loss scale in fp16 during validation."""
FORMAT_SLACK = 2.0
"""Factor by which ranks may be farther from float64 than one process in fewer bits. It applies to
the mean square of differences, because single ones are as large as values if a ReLU flips."""

ResultParts = dict[str, dict[ResultKey, TensorPart]]
"""Parts of results by kind (a field of `Results`) and key."""


def make_plans(plan: ModelPlan) -> tuple[ModelPlan, ...]:
    """Return the plan in float64, and for tf32 and int8 also in its own format."""
    exact = replace(plan, precision=FP64)
    return (exact, plan) if plan.precision.tf32 or plan.precision.int8 else (exact,)


class Validation:
    """The comparison in one format; all ranks must create and run it together.

    Args:
        context: The case.
        plan: The model, with the micro-batches of the small batch, in fp64 or in the format of the
            run.
        training: None for inference.
        inject: Injects the fault of ``--inject``.
        prepare: Called with a new engine before it runs.
        max_change: The largest change of results by rounding, relative to the largest value,
            for which the optimizer's own steps are compared.
    """

    def __init__(
        self,
        context: Context,
        plan: ModelPlan,
        training: TrainingConfig | None,
        inject: Callable[[Context, Engine], None],
        prepare: Callable[[Engine], None],
        *,
        max_change: float = MAX_CHANGE,
    ) -> None:
        self._context = context
        self._max_change = max_change
        self._training = training
        self._inject = inject
        self._prepare = prepare
        self._plan = plan
        self._exact = plan.precision is FP64
        self._comm: MPI.Intracomm = context.world.comm
        steps = 1 if training is None else STEPS + 1
        reference_calls = steps * len(plan.batches) * plan.layout.replicas
        self._rank_0_calls = 2 * reference_calls if self._exact else reference_calls + steps
        self._progress = PhaseProgress(
            partial(context.progress, "check"), self._rank_0_calls + steps
        )

    def run(self) -> None:
        """Compare, and report all checks."""
        context = self._context
        expected = Results()
        tolerances = dict.fromkeys(KINDS, 0.0)
        if self._comm.rank == 0:
            expected, tolerances = self._make_reference()
            release_memory()
        sleep_at_barrier(self._comm)
        self._training = self._comm.bcast(self._training)
        self._progress.reach(self._rank_0_calls)
        parts = self._compute_parts(self._comm, self._plan, self._inject)
        checks = context.entry.list_checks(context.params)
        tolerances = self._comm.bcast(tolerances)
        for kind in KINDS:
            if kind not in checks:
                continue
            error, detail = self._measure_distance(kind, expected, parts)
            context.check(kind, error, tolerances[kind], detail)
        if "slope" in checks and self._exact:
            gradients = {str(name): part.values.double() for (name,), part in parts["grad"].items()}
            slopes = compare_slopes(self._plan, self._make_images(FP64.work), gradients)
            context.check_worst("slope", slopes)
        self._progress.finish()

    def _make_images(self, dtype: torch.dtype) -> SyntheticImages:
        return make_synthetic_images(self._plan, self._context.seed_for("validation"), dtype)

    def _compute_reference(self, noise: float = 0.0) -> Results:
        images = self._make_images(FP64.work)
        return ReferenceModel(
            self._plan, images, self._training, noise=noise, progress=self._progress
        ).compute_results()

    def _make_reference(self) -> tuple[Results, dict[str, float]]:
        """Return the reference, and tolerances by kind relative to its largest value.

        If rounding changes the reference too much, small steps are compared instead of the
        optimizer's, because Adam turns a gradient of only rounding errors into a full step.
        """
        expected = self._compute_reference()
        if not self._exact:
            return expected, self._make_tolerances(expected)
        change_by_kind = self._measure_noise_changes(expected)
        if self._training is not None and max(change_by_kind.values()) > self._max_change:
            self._training = self._choose_small_steps(expected, change_by_kind)
            self._progress.lengthen(self._rank_0_calls)
            self._rank_0_calls *= 2
            expected = self._compute_reference()
            change_by_kind = self._measure_noise_changes(expected)
        return expected, {
            kind: min(MAX_TOLERANCE, max(MIN_TOLERANCE, SLACK * error))
            for kind, error in change_by_kind.items()
        }

    def _measure_noise_changes(self, expected: Results) -> dict[str, float]:
        """Return the changes of the reference by rounding, by kind."""
        noisy = self._compute_reference(NOISE)
        return {
            kind: compute_largest_change(getattr(expected, kind), getattr(noisy, kind))
            for kind in KINDS
        }

    def _choose_small_steps(
        self, expected: Results, change_by_kind: dict[str, float]
    ) -> TrainingConfig:
        """Return an optimizer with small steps in proportion to gradients."""
        assert self._training is not None, "it learns"
        kind = max(change_by_kind, key=lambda kind: change_by_kind[kind])
        self._context.choice(
            "compared_steps",
            "sgd",
            f"with {self._training.optimizer} rounding alone moves {kind} by "
            f"{change_by_kind[kind]:.1e} of the largest",
        )
        return TrainingConfig(
            "sgd", compute_small_rate(expected.weights.values(), expected.grad.values())
        )

    def _make_tolerances(self, expected: Results) -> dict[str, float]:
        """Return the tolerances by kind in a format of fewer bits."""
        parts = self._compute_alone()
        error_by_kind = {
            kind: self._compare(MPI.COMM_SELF, getattr(expected, kind), parts.get(kind, {}))[0]
            for kind in KINDS
        }
        epsilon = self._plan.precision.epsilon
        return {
            kind: min(1.0, FORMAT_SLACK * max(error, epsilon))
            for kind, error in error_by_kind.items()
        }

    def _compare(
        self, comm: MPI.Intracomm, expected: ResultTensors, parts: dict[ResultKey, TensorPart]
    ) -> tuple[float, str]:
        return compare(comm, expected, parts, mean_square=not self._exact)

    def _measure_distance(
        self, kind: str, expected: Results, parts: ResultParts
    ) -> tuple[float, str]:
        """Return the error of this rank's results of a kind, and a detail."""
        kind_expected = getattr(expected, kind)
        kind_parts = parts.get(kind, {})
        if kind != "state":
            return self._compare(self._comm, kind_expected, kind_parts)
        # Rank 0 has the entries of all ranks, because it writes them to files.
        result = None
        if self._comm.rank == 0:
            result = self._compare(MPI.COMM_SELF, kind_expected, kind_parts)
        error, detail = self._comm.bcast(result)
        return float(error), str(detail)

    def _compute_alone(self) -> ResultParts:
        """Return one process's results in the format of the run, replica by replica."""
        return self._compute_parts(MPI.COMM_SELF, put_on_one_process(self._plan), lambda *_: None)

    def _compute_parts(
        self, comm: MPI.Intracomm, plan: ModelPlan, inject: Callable[[Context, Engine], None]
    ) -> ResultParts:
        """Return this rank's parts of the results after the same steps."""

        def prepare(engine: Engine) -> None:
            self._prepare(engine)
            inject(self._context, engine)

        images = self._make_images(plan.dtype)
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
        # At the usual scale the first steps are often skipped, so there is nothing to compare.
        engine.arithmetic.loss_scale.value = VALIDATION_SCALE
    prepare(engine)
    parts = _train_steps(engine, images, progress) if learns else {}
    engine.evaluate()
    progress.advance()
    parts["output"] = _collect_outputs(engine)
    engine.free()
    return parts


def _train_steps(engine: Engine, images: SyntheticImages, progress: Progress) -> ResultParts:
    parts: ResultParts = {"loss": {}}
    for step in range(STEPS):
        images.set_step(step)
        engine.step()
        if step == 0:
            parts["input_grad"] = _collect_input_gradients(engine)
            parts["grad"] = _collect_gradients(engine)
        loss = torch.tensor(engine.loss(), dtype=torch.float64)
        parts["loss"][(step,)] = TensorPart(loss)
        engine.end_epoch()
        progress.advance()
    parts["weights"] = {
        (name,): TensorPart(parameter.detach())
        for stage in engine.stages
        for name, parameter in stage.named_parameters()
    }
    parts["running_stats"] = {
        (coordinates.replica, name): TensorPart(value)
        for coordinates, stage in zip(engine.coordinates, engine.stages, strict=True)
        for name, value in stage.named_buffers()
    }
    parts["state"] = {
        (name,): TensorPart(value.clone()) for name, value in gather_state_dict(engine)
    }
    return parts


def _collect_gradients(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (name,): TensorPart(parameter.grad.clone())
        # With master_comm, direction 0 has only a share of them.
        for stage in engine.stages[engine.plan.owner :]
        for name, parameter in stage.named_parameters()
        if parameter.grad is not None
    }


def _collect_input_gradients(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (coordinates.replica, index): TensorPart(
            gradient, _slice_pixels(engine.plan, coordinates, engine.plan.batches[index])
        )
        for coordinates, runner in zip(engine.coordinates, engine.runners, strict=True)
        for index, gradient in runner.image_gradients.items()
    }


def _collect_outputs(engine: Engine) -> dict[ResultKey, TensorPart]:
    return {
        (coordinates.replica, index): TensorPart(
            logits, _slice_output(engine.plan, coordinates, engine.plan.batches[index])
        )
        for coordinates, runner in zip(engine.coordinates, engine.runners, strict=True)
        for index, logits in runner.logits.items()
    }


def _slice_output(plan: ModelPlan, coordinates: RankCoordinates, batch: MicroBatch) -> Cut:
    """Return the slices of a rank's logits in those of a micro-batch."""
    return (
        _slice_pixels(plan, coordinates, batch)
        if plan.model.is_segmentation
        else (_slice_share(plan, coordinates, batch),)
    )


def _slice_pixels(plan: ModelPlan, coordinates: RankCoordinates, batch: MicroBatch) -> Cut:
    """Return the slices of a rank's pixels in the images of a micro-batch."""
    image = plan.model.image
    grid = plan.layout.stages[coordinates.stage].grid
    box = grid.tile(coordinates.tile, image.height, image.width)
    return _slice_share(plan, coordinates, batch), slice(None), slice(*box.rows), slice(*box.cols)


def _slice_share(plan: ModelPlan, coordinates: RankCoordinates, batch: MicroBatch) -> slice:
    """Return the slice of a rank's images in a micro-batch."""
    first, last = batch.member_images(
        coordinates.member, plan.layout.stages[coordinates.stage].members
    )
    return slice(first - batch.images[0], last - batch.images[0])
