"""Trains a network of one's own by the library.

    mpirun -n 6 python -m mpi4py train_own.py CASES.json RESULTS.json

A case is ``{"ranks", "network", "words", "wrong"}``. It may have ``networks``, the module of the
network if that is not `own_networks`, and ``arguments`` of the network. An answer has the losses of
some steps, the shapes of a rank's logits, what was saved, and whether the module and the generators
of random numbers were left as they were; or the error of a rank that is wrong on purpose.
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
    """Pixels that follow from the step and the image."""
    if not len(images):
        return torch.empty(0, 3, *box.shape)
    whole = [
        torch.randn(3, *SIZE, generator=torch.Generator().manual_seed(100 * step + image))
        for image in images
    ]
    return torch.stack(whole)[:, :, slice(*box.rows), slice(*box.cols)]


def masks(step, images, box):
    """Classes of pixels that follow from them."""
    return (pixels(step, images, box).sum(1) > 0).long() * 2


def classes(step, images, box):
    """Classes of images."""
    return torch.tensor([(step + image) % 5 for image in images], dtype=torch.int64)


def too_many(step, images, box):
    """Classes of an image more than there are."""
    return classes(step, range(len(images) + 1), box)


def network_of(case, seed):
    torch.manual_seed(seed)
    networks = importlib.import_module(case.get("networks", "support.networks.own_networks"))
    network = getattr(networks, case["network"])(**case.get("arguments", {}))
    if case.get("wrong") == "operators" and MPI.COMM_WORLD.rank:
        network.down1.relu = torch.nn.GELU()
    return network


def stale(engine, each_entry=state_dict.gather_state_dict):
    """The trained state, but for one entry that is as it was before training."""
    for name, tensor in each_entry(engine):
        own = engine.plan.model.network.module.state_dict()[name]
        yield name, own if name == "middle.conv1.weight" else tensor


def frozen(engine, each_entry=state_dict.gather_state_dict):
    """The trained state, but for one counter that misses a step."""
    for name, tensor in each_entry(engine):
        yield name, tensor - 1 if name == "down1.bn1.num_batches_tracked" else tensor


def perturbed(engine, step=Engine.step):
    """A training step whose last rank has a weight that is not quite right."""
    with torch.no_grad():
        next(engine.stages[-1].parameters()).mul_(1 + 1e-4)
    step(engine)


def no_memory(process):
    """One process that gets no memory for the weights in float64."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.00 GiB.")


PLANTED = {
    "no memory": (ReferenceModel, "compute_results", no_memory),
    "stale entry": (module_check, "gather_state_dict", stale),
    "frozen counter": (module_check, "gather_state_dict", frozen),
    "perturbed weight": (Engine, "step", perturbed),
}
"""What each fault replaces, an object and its attribute, and by what."""


def drawn():
    """The next number of each generator."""
    return [float(torch.rand(1)), random.random(), float(np.random.rand())]


def answer_of(case, comm):
    wrong = case.get("wrong")
    segments = case["network"] == "Segmenter"
    seed = comm.rank if wrong == "weights" else 4
    targets = too_many if wrong == "targets" else masks if segments else classes
    module = network_of(case, seed)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    random.seed(1)
    np.random.seed(1)
    try:
        with patch.object(*PLANTED[wrong]) if wrong in PLANTED else nullcontext():
            network = ParallelNetwork(module, SIZE, pixels, targets, comm=comm, **case["words"])
        numbers = drawn()
        after = module.state_dict()
        same = all(torch.equal(after[name], tensor) for name, tensor in before.items())
        losses = [network.step(step) for step in range(STEPS)]
        shapes = [list(one.shape) for one in network.infer(0).values()]
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
    run_each_case(lambda case: case["ranks"], answer_of)
