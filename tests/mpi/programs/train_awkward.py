"""Trains awkward networks with the library, several in each layout.

    mpirun -n 5 python -m mpi4py train_awkward.py CASES.json RESULTS.json

A case is ``{"ranks", "options", "networks", "folder"}``. A result has the losses of some steps by
network, or the error. The first rank saves the state of each network in the folder.
"""

import torch

from mpi.programs import train_own
from spbench_parallel.api import ParallelNetwork
from spbench_parallel.errors import CannotRunError
from support.networks.awkward_networks import ACCEPTED
from support.rank_cases import run_each_case

SIZE = train_own.SIZE
STEPS = train_own.STEPS
SEED = 4
OPTIONS = {"batch_size": 4, "learning_rate": 0.05, "precision": "fp64"}


def make_network(name):
    torch.manual_seed(SEED)
    return ACCEPTED[name]()


def train_network(case, name, comm):
    try:
        network = ParallelNetwork(
            make_network(name),
            SIZE,
            train_own.pixels,
            train_own.classes,
            comm=comm,
            verify=False,  # the test compares with plain torch
            **OPTIONS,
            **case["options"],
        )
        losses = [network.step(step) for step in range(STEPS)]
        network.save(f"{case['folder']}/{name}.pt")
        network.free()
    except CannotRunError as error:
        return str(error)
    return losses


def train_networks(case, comm):
    return {name: train_network(case, name, comm) for name in case["networks"]}


if __name__ == "__main__":
    run_each_case(lambda case: case["ranks"], train_networks)
