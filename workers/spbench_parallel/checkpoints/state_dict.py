"""The weights of a user-defined network as its ``state_dict``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from mpi4py import MPI

from spbench_parallel.checkpoints.checkpoint import gather_weights, run_on_all_ranks
from spbench_parallel.checkpoints.file import check_writable, write_atomically
from spbench_parallel.engine import Engine
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.state import map_names_in_state
from spbench_parallel.models.imported.state_files import check_format, write_state


def check(path: Path, world: MPI.Intracomm) -> None:
    """Check that rank 0 can write a file, before any work. All ranks must call it.

    Raises:
        CannotRunError: It cannot be written; on all ranks.
    """

    def check_file() -> None:
        check_format(path)
        if world.rank == 0:
            check_writable(path)

    run_on_all_ranks(world, check_file)


def save(path: Path, engine: Engine) -> None:
    """Write the ``state_dict`` of the user's module, with the weights of all stages.

    All ranks must call it, between steps. A tensor with several names is written under each. An
    entry of no layer, such as an unused auxiliary head, keeps its loaded value.

    Raises:
        CannotRunError: The file cannot be written; on all ranks.
    """
    model = engine.plan.model
    assert isinstance(model, ImportedModel), "others have checkpoints alone"
    module_state = model.network.module.state_dict()
    state = {
        name: tensor.to(module_state[name].dtype, copy=True)
        for name, tensor in gather_state_dict(engine)
    }

    def write() -> None:
        if engine.world.rank == 0:
            ordered = {name: state[name] for name in module_state}
            write_atomically(path, partial(write_state, ordered, path))

    run_on_all_ranks(engine.world, write)


def gather_state_dict(engine: Engine) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the entries of the user's ``state_dict`` with the stages' weights.

    All ranks must exhaust it, between steps. Only rank 0 yields entries, and only if the model is
    an imported network. Tensors are on the CPU, in the stages' number format, and may share the
    model's memory.
    """
    model = engine.plan.model
    if not isinstance(model, ImportedModel):
        return
    names_by_path = map_names_in_state(model.network.module)
    names_by_weight = {
        weight: names_by_path[path] for path, weight in model.map_layer_names().items()
    }
    remaining = model.network.module.state_dict()
    for weight, tensor in gather_weights(engine):
        for name in names_by_weight.get(weight, ()):
            del remaining[name]
            yield name, tensor
    if engine.world.rank == 0:
        yield from ((name, tensor.cpu()) for name, tensor in remaining.items())
