"""The comparison of training over ranks with the user's module on one process.

Both train two steps in float64 from the same weights, on synthetic images. All losses, and every
entry of the module's ``state_dict`` under every name, must be the same except for rounding.
"""

from __future__ import annotations

import gc
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.number_text import format_quantity
from spbench_parallel.autotune.balance import check_balance
from spbench_parallel.checkpoints.checkpoint import run_on_all_ranks
from spbench_parallel.checkpoints.state_dict import gather_state_dict
from spbench_parallel.device.failures import is_out_of_memory
from spbench_parallel.device.memory import release_memory, trim_heap
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError, first_line
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.models.imported.forward.recording import RandomStates
from spbench_parallel.models.imported.hooks import check_copies
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.tile_strategies import is_same_over_tiles
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP64
from spbench_parallel.validation.reference import (
    NOISE,
    ReferenceModel,
    Results,
    make_synthetic_images,
)

STEPS = 2
"""Training steps that are compared."""
QUIET_SECONDS = 2.0
"""Seconds after which rank 0 prints that the comparison is running."""
LEAST_SIDE = 8
"""The smallest height and width of images that are tried."""
SLACK = 100.0
"""The allowed ratio of rounding errors over many ranks to those on one process."""
Quantity = Literal["loss", "parameters", "buffers"]
TOLERANCES: Mapping[Quantity, tuple[float, float]] = {
    "loss": (1e-10, 1e-6),
    "parameters": (1e-6, 1e-4),
    "buffers": (1e-6, 1e-4),
}
"""The smallest and the largest tolerance by quantity. Changes of entries are kept in fp32."""

T = TypeVar("T")
State = Mapping[str, torch.Tensor]


class Distance(NamedTuple):
    """A distance of two runs relative to the largest value, and its loss or entry."""

    relative: float
    subject: str


Distances = dict[Quantity, Distance]
"""The largest distance of each quantity."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of one process.

    Attributes:
        losses: The loss of each step.
        changes: The change of each entry of the ``state_dict`` in the steps, in fp32 to save half
            of the memory.
    """

    losses: tuple[float, ...]
    changes: State


def check_against_module(comm: MPI.Intracomm, plan: ModelPlan, *, full: bool = False) -> str:
    """Compare two training steps of a plan with the user's module.

    All ranks must call it. The module, its weights and the state of all random generators are
    unchanged.

    Args:
        comm: The ranks of the layout.
        plan: The plan, of an imported network.
        full: Compare at the size of the plan, instead of the smallest one that its layout allows.

    Returns:
        A description of the comparison.

    Raises:
        CannotRunError: A loss or an entry of the ``state_dict`` differs, or the module cannot be
            copied; on all ranks.
    """
    _check_copies(plan)
    with announce(comm, plan.model.name), _preserve_random_state(plan.device):
        exact_plan = replace(plan if full else find_smallest_plan(comm, plan), precision=FP64)
        expected_run, rate = _on_rank_0(comm, lambda: _run_reference(exact_plan)) or (None, 0.0)
        _free_memory()
        distances = _train(comm, exact_plan, comm.bcast(rate), expected_run)
        difference = _on_rank_0(
            comm,
            lambda: (
                expected_run and _describe_difference(exact_plan, expected_run, distances, rate)
            ),
        )
    _free_memory()
    entry_count = 0 if expected_run is None else len(expected_run.changes)
    difference, entry_count = comm.bcast((difference, entry_count))
    description = _describe_comparison(exact_plan, entry_count)
    if difference is not None:
        raise CannotRunError(
            f"network {plan.model.name}: {difference}, compared with the module on one process "
            f"({description}); spbench does not run this network right in this layout: take "
            "another layout, and report the network, or skip the comparison with verify=False"
        )
    return description


def _check_copies(plan: ModelPlan) -> None:
    """Reject a module if its copy would compute with the weights of the original.

    Raises:
        CannotRunError: A hook or a replaced ``forward`` keeps a module or tensor.
    """
    assert isinstance(plan.model, ImportedModel), "the library imports every model"
    try:
        check_copies(plan.model.name, plan.model.network.module)
    except CannotRunError as error:
        raise CannotRunError(f"{error}, or skip the comparison with verify=False") from None


def _on_rank_0(comm: MPI.Intracomm, action: Callable[[], T]) -> T | None:
    """Run an action on rank 0, while the other ranks sleep; return its result there.

    Raises:
        CannotRunError: The action failed; on all ranks.
    """

    def act() -> T | None:
        try:
            return action() if comm.rank == 0 else None
        finally:
            sleep_at_barrier(comm)

    return run_on_all_ranks(comm, act)


def _describe_comparison(plan: ModelPlan, entry_count: int) -> str:
    images = sum(batch.size for batch in plan.batches)
    image = plan.model.image
    return (
        f"{STEPS} training steps of {format_quantity(images, 'image')} of "
        f"{image.height}x{image.width} in float64, on these ranks and on one process: losses and "
        f"{entry_count} entries of the state_dict"
    )


def find_smallest_plan(comm: MPI.Intracomm, plan: ModelPlan) -> ModelPlan:
    """Return the plan for the fewest and smallest images that its layout allows.

    Images are halved as often as the network supports with the same operators in the same layers,
    and tiles keep the pixels that their neighbours read. All ranks must call it.
    """
    max_members = max(stage.members for stage in plan.layout.stages)
    micro_batch_count = min(len(plan.batches), len(plan.layout.stages) + 1)
    images_per_batch = max(2, max_members)  # one image of one pixel has no statistics
    smaller_plan = replace(
        plan, batches=split_batch(micro_batch_count * images_per_batch, micro_batch_count)
    )
    model = _on_rank_0(comm, lambda: _find_smallest_model(smaller_plan))
    image_sides = comm.bcast(None if model is None else model.image.shape[1:])
    if image_sides is None:
        return smaller_plan
    if model is None:
        assert isinstance(plan.model, ImportedModel), "rank 0 has resized it"
        model = plan.model.resized(*image_sides)
    return replace(smaller_plan, model=model)


def _find_smallest_model(plan: ModelPlan) -> ImportedModel | None:
    """Return the network for the smallest possible images; None if these are its own."""
    model = plan.model
    assert isinstance(model, ImportedModel), "the library imports every model"
    tile_grids = {stage.grid for stage in plan.layout.stages if stage.spatial}
    for height, width in _list_halved_sides(model):
        try:
            smaller = model.resized(height, width)
            check_balance(replace(plan, model=smaller), plan.balance)
        except (CannotRunError, ValueError):
            continue
        if not _can_train(plan, smaller):
            continue
        if all(is_same_over_tiles(smaller.network, model.network, grid) for grid in tile_grids):
            return smaller
    return None


def _list_halved_sides(model: ImportedModel) -> Iterator[tuple[int, int]]:
    """Yield the sides of images that are halved at least once, from the smallest."""
    height = model.image.height
    width = model.image.width
    halvings = 0
    while min(height, width) >> (halvings + 1) >= LEAST_SIDE:
        halvings += 1
    for shift in range(halvings, 0, -1):
        yield height >> shift, width >> shift


def _can_train(plan: ModelPlan, model: ImportedModel) -> bool:
    """Return whether the user's module accepts such images in training."""
    images = torch.zeros(plan.batches[0].size, *model.image.shape, dtype=FP64.work)
    try:
        with torch.no_grad():
            model.build_whole(plan.device)(images.to(plan.device))
    except Exception:  # operators reject too few pixels in many ways
        return False
    _free_memory()
    return True


def _run_reference(plan: ModelPlan) -> tuple[_Run, float]:
    """Return the run of one process, and the learning rate of its small steps.

    Raises:
        CannotRunError: A loss is not finite, or there is not enough memory.
    """
    try:
        reference_model = _create_reference(
            plan, TrainingConfig("sgd", momentum=0.0), small_steps=True
        )
        results = reference_model.compute_results()
        rate = reference_model.learning_rate
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise CannotRunError(
            f"network {plan.model.name}: there is no memory to compare it with the module on one "
            "process, in float64 and with all its weights; verify=False leaves the comparison out "
            f"({first_line(error)})"
        ) from error
    del reference_model
    expected_run = _to_run(plan, results)
    if not all(map(math.isfinite, expected_run.losses)):
        raise CannotRunError(
            f"network {plan.model.name}: on one process its loss of synthetic images is "
            f"{expected_run.losses}, which nothing can be compared with; verify=False leaves the "
            "comparison out"
        )
    return expected_run, rate


def _create_reference(
    plan: ModelPlan, training: TrainingConfig, *, noise: float = 0.0, small_steps: bool = False
) -> ReferenceModel:
    return ReferenceModel(
        plan,
        make_synthetic_images(plan, plan.seed, FP64.work),
        training,
        noise=noise,
        steps=STEPS,
        kinds=("loss", "state"),
        small_steps=small_steps,
    )


def _to_run(plan: ModelPlan, results: Results) -> _Run:
    """Return the run with these results, and free the memory of their ``state_dict``."""
    initial_state = _initial_state(plan)
    changes = dict[str, torch.Tensor]()
    while results.state:
        (name,), value = results.state.popitem()
        changes[str(name)] = _change(initial_state[str(name)], value).float()
    return _Run(tuple(float(loss) for loss in results.loss.values()), changes)


def _train(
    comm: MPI.Intracomm, plan: ModelPlan, rate: float, expected_run: _Run | None
) -> Distances:
    """Train over the ranks; return the distances on rank 0. All ranks must call it."""
    images = make_synthetic_images(plan, plan.seed)
    engine = Engine(comm, plan, images, TrainingConfig("sgd", rate, momentum=0.0))
    losses = []
    for step in range(STEPS):
        images.set_step(step)
        engine.step()
        losses.append(engine.loss())
    entries = gather_state_dict(engine)
    distances: Distances = {}
    if expected_run is not None:
        distances = _measure_distances(plan, expected_run, losses, entries)
    for _ in entries:
        pass  # other ranks than 0 must exhaust it, to send their entries
    engine.free()
    return distances


def _initial_state(plan: ModelPlan) -> State:
    assert isinstance(plan.model, ImportedModel), "the library imports every model"
    return plan.model.network.module.state_dict(keep_vars=True)


def _describe_difference(
    plan: ModelPlan, expected: _Run, distances: Distances, rate: float
) -> str | None:
    """Return a message about the first difference that rounding does not explain.

    The result is None if there is none. The effect of rounding is only computed if a distance
    exceeds the smallest tolerance.
    """
    smallest_tolerances = {quantity: bounds[0] for quantity, bounds in TOLERANCES.items()}
    if _find_first_exceeding(distances, smallest_tolerances) is None:
        return None
    noisy_model = _create_reference(plan, TrainingConfig("sgd", rate, momentum=0.0), noise=NOISE)
    results = noisy_model.compute_results()
    entries = ((str(name), value) for (name,), value in results.state.items())
    rounding_distances = _measure_distances(
        plan, expected, [float(loss) for loss in results.loss.values()], entries
    )
    tolerances = {
        quantity: min(largest, max(smallest, SLACK * rounding_distances[quantity][0]))
        for quantity, (smallest, largest) in TOLERANCES.items()
    }
    quantity = _find_first_exceeding(distances, tolerances)
    if quantity is None:
        return None
    distance, subject = distances[quantity]
    return f"{subject} is off by {distance:.1e} (tolerance {tolerances[quantity]:.1e})"


def _find_first_exceeding(
    distances: Distances, tolerances: Mapping[Quantity, float]
) -> Quantity | None:
    """Return the first quantity with a distance that is not within its tolerance.

    The result is None if there is none.
    """
    for quantity, distance in distances.items():
        if not distance.relative <= tolerances[quantity]:
            return quantity
    return None


def _measure_distances(
    plan: ModelPlan,
    expected: _Run,
    losses: Sequence[float],
    entries: Iterable[tuple[str, torch.Tensor]],
) -> Distances:
    """Return the distances of losses and entries from an expected run.

    Losses are compared with the largest loss. Changes of entries are compared with the largest
    change of a parameter, or buffer, since small steps change numbers little. The distance of a
    missing entry is infinite.
    """
    initial_state = _initial_state(plan)
    quantity_by_name = {name: _find_quantity(tensor) for name, tensor in initial_state.items()}
    largest: dict[Quantity, float] = dict.fromkeys(TOLERANCES, 0.0)
    largest["loss"] = max(map(abs, expected.losses))
    for name, change in expected.changes.items():
        quantity = quantity_by_name[name]
        largest[quantity] = max(largest[quantity], _largest(change))
    distances = {quantity: Distance(0.0, quantity) for quantity in TOLERANCES}

    def add(quantity: Quantity, error: float, subject: str) -> None:
        relative = error / (largest[quantity] or 1.0)
        if _replace_nan_by_inf(relative) > _replace_nan_by_inf(distances[quantity].relative):
            distances[quantity] = Distance(relative, subject)

    for step, (loss, expected_loss) in enumerate(zip(losses, expected.losses, strict=True)):
        add("loss", abs(loss - expected_loss), f"the loss of step {step}")
    missing_changes = dict(expected.changes)
    for name, tensor in entries:
        error = _largest(_change(initial_state[name], tensor) - missing_changes.pop(name))
        add(quantity_by_name[name], error, f"entry {name} of the state_dict")
    for name in missing_changes:
        add("parameters", math.inf, f"entry {name} of the state_dict")
    return distances


def _replace_nan_by_inf(error: float) -> float:
    """Return an error for comparisons: not a number is worse than all others."""
    return math.inf if math.isnan(error) else error


def _find_quantity(tensor: torch.Tensor) -> Quantity:
    return "parameters" if isinstance(tensor, nn.Parameter) else "buffers"


def _change(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Return the difference of two tensors, in float64 on the CPU."""
    return after.detach().cpu().double() - before.detach().cpu().double()


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _free_memory() -> None:
    """Return freed memory to the system, so that it is available for training."""
    release_memory()
    gc.collect()
    trim_heap()


@contextmanager
def announce(
    comm: MPI.Intracomm, network: str, quiet_seconds: float = QUIET_SECONDS
) -> Iterator[None]:
    """Print on rank 0 that a network is compared, after ``quiet_seconds`` of it."""
    line = f"spbench: comparing two training steps of {network} with one process (verify)"
    timer = threading.Timer(quiet_seconds, print, [line], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if comm.rank == 0:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _preserve_random_state(device: torch.device) -> Iterator[None]:
    """Restore the generators of torch, NumPy and Python at the end."""
    states = RandomStates.capture()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
    states.restore()
