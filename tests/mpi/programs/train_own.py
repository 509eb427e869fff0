"""Trains a network of one's own by the library.

    mpirun -n 6 python -m mpi4py train_own.py CASES.json RESULTS.json

A case is ``{"ranks", "network", "words", "wrong"}``. An answer has the losses of some steps, the
shapes of a rank's logits, and what was saved; or the error of a rank that is wrong on purpose.
"""

import torch

import own_networks
from mpi.programs.each_case import answer_each
from spbench_workers.errors import CannotRunError
from spbench_workers.library import ParallelNetwork

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
    return getattr(own_networks, case["network"])()


def answer_of(case, comm):
    wrong, segments = case.get("wrong"), case["network"] == "Segmenter"
    seed = comm.rank if wrong == "weights" else 4
    targets = too_many if wrong == "targets" else masks if segments else classes
    try:
        network = ParallelNetwork(
            network_of(case, seed), SIZE, pixels, targets, comm=comm, **case["words"]
        )
        losses = [network.step(step) for step in range(STEPS)]
        shapes = [list(one.shape) for one in network.infer(0).values()]
        if case.get("save"):
            network.save(case["save"])
        network.free()
    except CannotRunError as error:
        return {"error": str(error)}
    return {"losses": losses, "shapes": shapes}


if __name__ == "__main__":
    answer_each(lambda case: case["ranks"], answer_of)
