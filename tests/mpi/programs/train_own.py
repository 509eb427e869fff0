"""Trains a custom network with the library.

    mpirun -n 6 python -m mpi4py train_own.py CASES.json RESULTS.json

A case is ``{"ranks", "network", "options", "fault"}``. It may have ``networks``, the module of the
network if that is not `own_networks`, and ``arguments`` of the network. A result has the losses of
some steps, the shapes of the logits of a rank, the next random numbers, and whether the module is
unchanged; or the error of a fault.
"""

import importlib
import random
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI

from spbench_parallel.api import ParallelNetwork
from spbench_parallel.checkpoints import state_dict
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.validation import module_check
from spbench_parallel.validation.reference import ReferenceModel
from support.rank_cases import run_each_case

SIZE = 24, 36
STEPS = 3


def pixels(step, images, box):
    """Return pixels that depend on the step and the image only."""
    if not len(images):
        return torch.empty(0, 3, *box.shape)
    images = [
        torch.randn(3, *SIZE, generator=torch.Generator().manual_seed(100 * step + image))
        for image in images
    ]
    return torch.stack(images)[:, :, slice(*box.rows), slice(*box.cols)]


def masks(step, images, box):
    """Return classes of pixels that depend on the pixels."""
    return (pixels(step, images, box).sum(1) > 0).long() * 2


def classes(step, images, box):
    """Return classes of images."""
    return torch.tensor([(step + image) % 5 for image in images], dtype=torch.int64)


def make_too_many_classes(step, images, box):
    """Return classes of one image too many."""
    return classes(step, range(len(images) + 1), box)


def make_network(case, seed):
    torch.manual_seed(seed)
    networks = importlib.import_module(case.get("networks", "support.networks.own_networks"))
    network = getattr(networks, case["network"])(**case.get("arguments", {}))
    if case.get("fault") == "operators" and MPI.COMM_WORLD.rank:
        network.down1.relu = torch.nn.GELU()
    return network


def iterate_with_stale_entry(engine, iterate=state_dict.gather_state_dict):
    """Yield the trained state, with one entry from before the training."""
    for name, tensor in iterate(engine):
        initial = engine.plan.model.network.module.state_dict()[name]
        yield name, initial if name == "middle.conv1.weight" else tensor


def iterate_with_frozen_counter(engine, iterate=state_dict.gather_state_dict):
    """Yield the trained state, with one counter that misses a step."""
    for name, tensor in iterate(engine):
        yield name, tensor - 1 if name == "down1.bn1.num_batches_tracked" else tensor


def step_with_perturbed_weight(engine, step=Engine.step):
    """Run a training step with a slightly wrong weight on the last rank."""
    with torch.no_grad():
        next(engine.stages[-1].parameters()).mul_(1 + 1e-4)
    step(engine)


def raise_out_of_memory(process):
    """Fail like one process without memory for the weights in float64."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.00 GiB.")


REPLACEMENTS = {
    "no memory": (ReferenceModel, "compute_results", raise_out_of_memory),
    "stale entry": (module_check, "gather_state_dict", iterate_with_stale_entry),
    "frozen counter": (module_check, "gather_state_dict", iterate_with_frozen_counter),
    "perturbed weight": (Engine, "step", step_with_perturbed_weight),
}
"""The object and attribute that each fault replaces, with the replacement."""


def draw_numbers():
    """Return the next number of each generator."""
    return [float(torch.rand(1)), random.random(), float(np.random.rand())]


def train_case(case, comm):
    fault = case.get("fault")
    seed = comm.rank if fault == "weights" else 4
    targets = masks if case["network"] == "Segmenter" else classes
    if fault == "targets":
        targets = make_too_many_classes
    module = make_network(case, seed)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    random.seed(1)
    np.random.seed(1)
    try:
        with patch.object(*REPLACEMENTS[fault]) if fault in REPLACEMENTS else nullcontext():
            network = ParallelNetwork(module, SIZE, pixels, targets, comm=comm, **case["options"])
        numbers = draw_numbers()
        after = module.state_dict()
        same = all(torch.equal(after[name], tensor) for name, tensor in before.items())
        losses = [network.step(step) for step in range(STEPS)]
        shapes = [list(logits.shape) for logits in network.infer(0).values()]
        if case.get("save"):
            network.save(case["save"])
        network.free()
    except CannotRunError as error:
        return {"error": str(error)}
    return {
        "losses": losses,
        "shapes": shapes,
        "verified": network.verified,
        "numbers": numbers,
        "same": same,
    }


if __name__ == "__main__":
    run_each_case(lambda case: case["ranks"], train_case)
