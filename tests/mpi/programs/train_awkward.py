"""Trains awkward networks by the library, several in each layout.

    mpirun -n 5 python -m mpi4py train_awkward.py CASES.json RESULTS.json

A case is ``{"ranks", "words", "networks", "folder"}``. An answer has, by network, the losses of
some steps, or the error; the first rank saves each network's state in the folder.
"""

import torch

from mpi.programs import train_own
from spbench_parallel.api import ParallelNetwork
from spbench_parallel.errors import CannotRunError
from support.networks.awkward_networks import RIGHT
from support.rank_cases import run_each_case

SIZE = train_own.SIZE
STEPS = train_own.STEPS
SEED = 4
WORDS = {"batch_size": 4, "learning_rate": 0.05, "precision": "fp64"}


def network_of(name):
    torch.manual_seed(SEED)
    return RIGHT[name]()


def losses_of(case, name, comm):
    try:
        network = ParallelNetwork(
            network_of(name),
            SIZE,
            train_own.pixels,
            train_own.classes,
            comm=comm,
            verify=False,  # the test compares with plain torch
            **WORDS,
            **case["words"],
        )
        losses = [network.step(step) for step in range(STEPS)]
        network.save(f"{case['folder']}/{name}.pt")
        network.free()
    except CannotRunError as error:
        return str(error)
    return losses


def answer_of(case, comm):
    return {name: losses_of(case, name, comm) for name in case["networks"]}


if __name__ == "__main__":
    run_each_case(lambda case: case["ranks"], answer_of)
