"""The ranks of `benchmarks.format_check`: checked steps, with faults and without.

    mpiexec -n 5 python -m mpi4py -m benchmarks.format_check_ranks LOG MODELS FORMATS SEEDS SECONDS

Stage 0 is over 2x2 tiles, stage 1 on one rank. Rank 0 adds a line to LOG for each step.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid
from spbench_core.models.registry import make_model
from spbench_parallel.engine import Engine
from spbench_parallel.full_size.calls import OperatorErrors, StepErrors
from spbench_parallel.full_size.check import StepCheck
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.model.fault_injection import (
    SLIGHT_FACTOR,
    drop_tile,
    scale_input_gradient,
    scale_weight_gradient,
)

CLASSES = 10
BATCH = 2
MODELS: dict[str, dict[str, Any]] = {
    "resnet": {"image_size": (32, 32), "version": 1, "depth": 8},
    # Rounding to bf16 may cause 1 % of error in kernels of 16 weights, the least of 16 filters.
    "amoebanet": {"image_size": (64, 64), "num_layers": 3, "num_filters": 64},
}
PLANTED_FAULTS: dict[str, tuple[Callable[..., None], tuple[float, ...]]] = {
    "zero weight": (scale_weight_gradient, (0.0,)),
    "zero input": (scale_input_gradient, (0.0,)),
    "1.01 weight": (scale_weight_gradient, (SLIGHT_FACTOR,)),
    "1.01 input": (scale_input_gradient, (SLIGHT_FACTOR,)),
    "lost tile": (drop_tile, ()),
}
CHECKS = ("operators",)


class ErrorsAboveBound(WorstError):  # noqa: N818 - not an exception
    """All errors above their bounds, by tensor."""

    def __init__(self, largest: dict[str, float]) -> None:
        super().__init__(tolerance=1.0, compared=True)
        self._largest = largest

    def add(self, error: float, tolerance: float = 1.0, detail: str = "", wrong: int = 0) -> None:
        """Add an error, relative to its bound."""
        super().add(error, tolerance, detail, wrong)
        tensor = detail.split(" at row")[0]
        if not error <= 1.0:
            self._largest[tensor] = max(error, self._largest.get(tensor, 0.0))


def build_plan(name: str, precision: str, seed: int) -> ModelPlan:
    """Return the plan of a step."""
    network = make_model(name, num_classes=CLASSES, **MODELS[name])
    layout = build_layout(2, [Grid(2, 2)])
    # Few layers over tiles have all kinds of operators, and take fewer turns of five processes.
    tiled_layers = 2
    return ModelPlan(
        network,
        layout,
        (tiled_layers, len(network.layers) - tiled_layers),
        split_batch(BATCH, 1, mirrored=False),
        seed=seed,
        precision=PRECISIONS[precision],
        transport="packed",
    )


def plant_faults(engine: Engine, seed: int) -> list[tuple[str, str]]:
    """Plant each fault at a different operator; return their names and tensors.

    The zeros are in the last tile and the factors on the rank with whole images, or the other way
    round, depending on the parity of the seed.
    """
    rank = engine.world.rank
    last = engine.world.size - 1
    if rank < last - 1:
        return []
    generator = random.Random(seed)
    (coordinates,) = engine.coordinates
    (stage,) = engine.stages
    kind = SpatialConv2d if rank < last else nn.Conv2d
    convs = [pair for pair in stage.named_modules() if isinstance(pair[1], kind)]
    zeros = (rank == last) == bool(seed % 2)
    names = [name for name in PLANTED_FAULTS if name.startswith("zero" if zeros else "1.01")]
    if rank < last:
        names.append("lost tile")
    # A zero input gradient makes all gradients of earlier operators zero: it has the first one.
    names.sort(key=lambda name: not name.endswith("input"))
    positions = sorted(generator.sample(range(len(convs)), len(names)))
    planted = []
    for name, position in zip(names, positions, strict=True):
        module_name, conv = convs[position]
        inject, arguments = PLANTED_FAULTS[name]
        inject(conv, *arguments)
        location = f"stage {coordinates.stage}, {module_name}"
        tensor = "input gradient" if name.endswith("input") else "gradient of weight"
        planted.append((name, f"{location}: {tensor}"))
    return planted


def run_step(world: MPI.Intracomm, name: str, precision: str, seed: int, faulty: bool) -> Any:
    """Run a step; return whether each planted fault was detected, and other alarms."""
    plan = build_plan(name, precision, seed)
    images = SyntheticImages(plan.model.image, CLASSES, seed=seed, dtype=plan.dtype)
    training = TrainingConfig()
    engine = Engine(world, plan, images, training)
    planted = plant_faults(engine, seed) if faulty else []
    largest: dict[str, float] = {}
    errors = StepErrors(OperatorErrors(ErrorsAboveBound(largest), ErrorsAboveBound(largest)))
    if not faulty:
        errors = StepErrors(errors.operators, *(ErrorsAboveBound(largest) for _ in range(3)))
    StepCheck(engine, training, errors, CHECKS, checks_all=True).run()
    engine.free()
    rank_detected = {name: tensor in largest for name, tensor in planted}
    planted_tensors = [tensor for _, tensor in planted]
    # A dropped tile is missing on all tiles, and in the gradient of the bias too.
    planted_tensors += [
        tensor.replace("weight", "bias") for name, tensor in planted if name == "lost tile"
    ]
    others = {tensor: error for tensor, error in largest.items() if tensor not in planted_tensors}
    gathered = world.allgather((rank_detected, others, planted_tensors))
    expected = {tensor for _, _, tensors in gathered for tensor in tensors}
    alarms = [
        (rank, tensor, error)
        for rank, (_, others, _) in enumerate(gathered)
        for tensor, error in others.items()
        if tensor not in expected
    ]
    detected = {
        name: hit for faults_of_rank, _, _ in gathered for name, hit in faults_of_rank.items()
    }
    return detected, alarms


def main() -> None:
    """Run the steps that are missing from the log."""
    log, models, formats, seeds, seconds = sys.argv[1:]
    world = MPI.COMM_WORLD
    started = monotonic()
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    done = world.bcast({tuple(json.loads(line)["step"]) for line in lines})
    seed_list = [seed for number in range(int(seeds)) for seed in (number, number + int(seeds))]
    for seed in seed_list:
        for name in models.split(","):
            for precision in formats.split(","):
                step = (name, precision, seed)
                if step in done:
                    continue
                if world.bcast(monotonic() - started > float(seconds)):
                    return
                detected, alarms = run_step(world, *step, faulty=seed >= int(seeds))
                if world.rank == 0:
                    with Path(log).open("a") as file:
                        record = {
                            "step": step,
                            "detected": detected,
                            "alarms": alarms,
                            "t": monotonic() - started,
                        }
                        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
