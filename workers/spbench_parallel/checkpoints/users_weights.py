"""The weights of a network of the user's own, as its own ``state_dict``, free of the layout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from mpi4py import MPI

from spbench_parallel.checkpoints.checkpoint import agreed, each_weight
from spbench_parallel.checkpoints.file import check_writable, write_whole
from spbench_parallel.engine import Engine
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.state import names_in_state
from spbench_parallel.models.imported.state_files import check_format, write_state


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

    All ranks must call it, between steps. A tensor of several names is written under each. An
    entry of no layer, such as an unused auxiliary head, keeps its loaded value.

    Raises:
        CannotRunError: The file cannot be written; on all ranks.
    """
    model = engine.plan.model
    assert isinstance(model, ImportedModel), "others have checkpoints alone"
    own = model.network.module.state_dict()
    state = {name: tensor.to(own[name].dtype, copy=True) for name, tensor in each_entry(engine)}

    def write() -> None:
        if engine.world.rank == 0:
            ordered = {name: state[name] for name in own}
            write_whole(path, partial(write_state, ordered, path))

    agreed(engine.world, write)


def each_entry(engine: Engine) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the entries of the ``state_dict`` of the user's module, with the stages' weights.

    All ranks must exhaust it, between steps; it yields nothing on other ranks than rank 0, and
    nothing at all if the model is not an imported network. Tensors are on the CPU, in the format in
    which stages keep them, and may share the model's memory.
    """
    model = engine.plan.model
    if not isinstance(model, ImportedModel):
        return
    every_name = names_in_state(model.network.module)
    names = {own: every_name[path] for path, own in model.owners().items()}
    missing = model.network.module.state_dict()
    for own, tensor in each_weight(engine):
        for name in names.get(own, ()):
            del missing[name]
            yield name, tensor
    if engine.world.rank == 0:
        yield from ((name, tensor.cpu()) for name, tensor in missing.items())
