"""The ranks of `benchmarks.format_check`: one step after another, checked, with faults and without.

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
from spbench_parallel.full_size.bound import OperatorErrors
from spbench_parallel.full_size.check import StepCheck, StepErrors
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
    # Rounding to bf16 alone may be off by 1 % in kernels of 16 weights, the least of 16 filters.
    "amoebanet": {"image_size": (64, 64), "num_layers": 3, "num_filters": 64},
}
CONTROLS: dict[str, tuple[Callable[..., None], tuple[float, ...]]] = {
    "zero weight": (scale_weight_gradient, (0.0,)),
    "zero input": (scale_input_gradient, (0.0,)),
    "1.01 weight": (scale_weight_gradient, (SLIGHT_FACTOR,)),
    "1.01 input": (scale_input_gradient, (SLIGHT_FACTOR,)),
    "lost tile": (drop_tile, ()),
}
NAMES = ("operators",)


class EveryError(WorstError):
    """All errors beyond their bounds, by tensor."""

    def __init__(self, largest: dict[str, float]) -> None:
        super().__init__(tolerance=1.0, compared=True)
        self._largest = largest

    def add(self, error: float, tolerance: float = 1.0, detail: str = "", wrong: int = 0) -> None:
        """Take in an error over its bound."""
        super().add(error, tolerance, detail, wrong)
        tensor = detail.split(" at row")[0]
        if not error <= 1.0:
            self._largest[tensor] = max(error, self._largest.get(tensor, 0.0))


def plan_of(name: str, precision: str, seed: int) -> ModelPlan:
    """Return the plan of a step."""
    network = make_model(name, num_classes=CLASSES, **MODELS[name])
    layout = build_layout(2, [Grid(2, 2)])
    # Few layers over tiles have all kinds of operators, and take fewer turns of five processes.
    tiled = 2
    return ModelPlan(
        network,
        layout,
        (tiled, len(network.layers) - tiled),
        split_batch(BATCH, 1, mirrored=False),
        seed=seed,
        precision=PRECISIONS[precision],
        transport="packed",
    )


def plant(engine: Engine, seed: int) -> list[tuple[str, str]]:
    """Plant each control at an operator of its own; return their names and tensors.

    Of two seeds one has the zeros in the last tile and the factors on the rank with whole images,
    and the other has it the other way.
    """
    rank = engine.world.rank
    last = engine.world.size - 1
    if rank < last - 1:
        return []
    drawn = random.Random(seed)
    (place,) = engine.coordinates
    (stage,) = engine.stages
    kind = SpatialConv2d if rank < last else nn.Conv2d
    convs = [pair for pair in stage.named_modules() if isinstance(pair[1], kind)]
    zeros = (rank == last) == bool(seed % 2)
    names = [name for name in CONTROLS if name.startswith("zero" if zeros else "1.01")]
    if rank < last:
        names.append("lost tile")
    # Behind an input gradient of zero all others would be zero too: it is the first of them.
    names.sort(key=lambda name: not name.endswith("input"))
    places = sorted(drawn.sample(range(len(convs)), len(names)))
    found = []
    for name, (where, conv) in zip(names, (convs[place] for place in places), strict=True):
        spoil, factor = CONTROLS[name]
        spoil(conv, *factor)
        words = f"stage {place.stage}, {where}"
        tensor = "input gradient" if name.endswith("input") else "gradient of weight"
        found.append((name, f"{words}: {tensor}"))
    return found


def outcome(world: MPI.Intracomm, name: str, precision: str, seed: int, spoilt: bool) -> Any:
    """Take a step; return the controls with whether each was found, and all other alarms."""
    plan = plan_of(name, precision, seed)
    images = SyntheticImages(plan.model.image, CLASSES, seed=seed, dtype=plan.dtype)
    training = TrainingConfig()
    engine = Engine(world, plan, images, training)
    planted = plant(engine, seed) if spoilt else []
    largest: dict[str, float] = {}
    errors = StepErrors(OperatorErrors(EveryError(largest), EveryError(largest)))
    if not spoilt:
        errors = StepErrors(errors.operators, *(EveryError(largest) for _ in range(3)))
    StepCheck(engine, training, errors, NAMES, checks_all=True).run()
    engine.free()
    controls = {name: where in largest for name, where in planted}
    places = [where for _, where in planted]
    # A dropped tile is missing on all tiles alike, and in the gradient of the bias too.
    places += [where.replace("weight", "bias") for name, where in planted if name == "lost tile"]
    others = {tensor: error for tensor, error in largest.items() if tensor not in places}
    every = world.allgather((controls, others, places))
    known = {where for _, _, several in every for where in several}
    alarms = [
        (rank, tensor, error)
        for rank, (_, others, _) in enumerate(every)
        for tensor, error in others.items()
        if tensor not in known
    ]
    return {name: hit for one, _, _ in every for name, hit in one.items()}, alarms


def main() -> None:
    """Take the steps that the log has not."""
    log, models, formats, seeds, seconds = sys.argv[1:]
    world = MPI.COMM_WORLD
    begun = monotonic()
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    done = world.bcast({tuple(json.loads(line)["step"]) for line in lines})
    both = [seed for one in range(int(seeds)) for seed in (one, one + int(seeds))]
    for seed in both:
        for name in models.split(","):
            for precision in formats.split(","):
                step = (name, precision, seed)
                if step in done:
                    continue
                if world.bcast(monotonic() - begun > float(seconds)):
                    return
                controls, alarms = outcome(world, *step, spoilt=seed >= int(seeds))
                if world.rank == 0:
                    with Path(log).open("a") as file:
                        words = {
                            "step": step,
                            "controls": controls,
                            "alarms": alarms,
                            "t": monotonic() - begun,
                        }
                        file.write(json.dumps(words) + "\n")


if __name__ == "__main__":
    main()
