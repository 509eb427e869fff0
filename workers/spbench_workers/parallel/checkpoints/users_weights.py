"""The weights of a network of the user's own, as its own ``state_dict``, free of the layout."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from mpi4py import MPI

from spbench_workers.models.imported.model import ImportedModel
from spbench_workers.models.imported.state_files import check_format, write_state
from spbench_workers.parallel.checkpoints.checkpoint import agreed, gathered_weights
from spbench_workers.parallel.checkpoints.file import check_writable, write_whole
from spbench_workers.parallel.engine import Engine


def check(path: Path, world: MPI.Intracomm) -> None:
    """Refuse a file that rank 0 cannot write, before any work. All ranks must call it.

    Raises:
        CannotRunError: It cannot be written; on all ranks.
    """

    def check_here() -> None:
        check_format(path)
        if world.rank == 0:
            check_writable(path)

    agreed(world, check_here)


def save(path: Path, engine: Engine) -> None:
    """Write the ``state_dict`` of the user's module, with the weights of all stages.

    All ranks must call it, between steps. What no layer has, such as an auxiliary head that is not
    in use, is as it was loaded.

    Raises:
        CannotRunError: The file cannot be written; on all ranks.
    """
    model = engine.plan.model
    assert isinstance(model, ImportedModel), "others have checkpoints alone"
    state = gathered_state(engine)
    formats = {name: tensor.dtype for name, tensor in model.network.module.state_dict().items()}

    def write() -> None:
        if engine.world.rank == 0:
            converted = {name: tensor.to(formats[name]) for name, tensor in state.items()}
            write_whole(path, partial(write_state, converted, path))

    agreed(engine.world, write)


def gathered_state(engine: Engine) -> dict[str, torch.Tensor]:
    """Return the ``state_dict`` of the user's module on rank 0, with the weights of all stages.

    All ranks must call it, between steps. Other ranks get an empty one, and so do all ranks if the
    model is not an imported network. Numbers have the format in which the stages keep them.
    """
    model = engine.plan.model
    if not isinstance(model, ImportedModel):
        return {}
    weights = gathered_weights(engine)
    if engine.world.rank != 0:
        return {}
    state = dict(model.network.module.state_dict())
    return state | {name: weights[own] for name, own in model.owners().items()}
