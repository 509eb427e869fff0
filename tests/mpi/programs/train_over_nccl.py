"""Trains models over NCCL stages, and writes the problems of each rank.

    mpirun -n 4 python -m mpi4py train_over_nccl.py CASES.json RESULTS.json

No GPU takes part: gloo replaces NCCL, on tensors of the host. The program looks for operations that
may deadlock with NCCL. While a receive is posted, no rank may

- wait for the whole device,
- open an exchange between tiles, which is timed, and freed if it is slower
- launch a kernel for the first time, because loading it may wait for the whole device.

The results must be bitwise equal to those over MPI.
"""

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spbench_core.layout.micro_batches import split_batch
from spbench_core.models.registry import make_model
from spbench_core.models.routes import find_routes
from spbench_parallel.device import streams
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.p2p import opening
from spbench_parallel.p2p.opening import NcclP2P
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.spatial.exchange import Exchange
from support.rank_cases import run_each_case
from support.trained_models import CLASSES, RandomImages, make_layout, make_plan

STEPS = 2
NETWORK = make_model(
    "resnet", image_size=[32, 32], num_classes=CLASSES, version=1, depth=8, width=4
)


class PostedReceive:
    """A receive that is posted until its wait."""

    count = 0

    def __init__(self, pending):
        self._pending = pending
        PostedReceive.count += 1

    def wait(self):
        self._pending.wait()
        PostedReceive.count -= 1


class KernelRecorder(TorchDispatchMode):
    """Records launched kernels, and those first launched while a receive is posted.

    A kernel is identified by its operator and the number formats. Views and empty memory need no
    kernel.
    """

    def __init__(self):
        super().__init__()
        self.kernels = set()
        self.late = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        aliases = [value.alias_info for value in function._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        if not (is_view or "empty" in function._schema.name):
            leaves = tree_leaves((args, kwargs))
            formats = [str(leaf.dtype) for leaf in leaves if isinstance(leaf, torch.Tensor)]
            kernel = (str(function), *formats)
            if kernel not in self.kernels and PostedReceive.count:
                self.late.add(kernel)
            self.kernels.add(kernel)
        return function(*args, **(kwargs or {}))


@contextmanager
def patch_gloo_for_nccl(problems):
    """Replace NCCL by gloo, and append the operations that may deadlock with NCCL."""
    original_receive = NcclP2P.receive
    original_init = Exchange.__init__

    def receive(self, messages, tag):
        return [PostedReceive(pending) for pending in original_receive(self, messages, tag)]

    def synchronize(device=None):
        if PostedReceive.count:
            problems.append(f"{PostedReceive.count} receives are posted at a wait for the device")

    def init(self, *args, **kwargs):
        if PostedReceive.count:
            problems.append(f"{PostedReceive.count} receives are posted as an exchange is opened")
        original_init(self, *args, **kwargs)

    with ExitStack() as stack:
        for target, name, value in (
            (opening, "explain_missing_nccl", lambda comm, device: ""),
            (NcclP2P, "receive", receive),
            (streams, "is_gpu", lambda device: True),
            (torch.cuda, "synchronize", synchronize),
            (Exchange, "__init__", init),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def make_case_plan(backend, case):
    arguments = {"classes": CLASSES}
    plan = make_plan(
        import_network("support.networks.own_networks:Levels", arguments, NETWORK.image, 1)
        if case["skips"]
        else NETWORK,
        make_layout(case),
        split_batch(case["batch"], case["parts"], mirrored=case["mirrored"]),
        seed=1,
        precision=PRECISIONS[case["precision"]],
        transport=case["transport"],
        backend=backend,
        statistics=case["statistics"],
    )
    routes = plan.routes()
    skips = find_routes(routes.table, routes.stages, None).skips
    assert bool(skips) == case["skips"]
    return replace(plan, straight=frozenset((skip.source, skip.target) for skip in skips))


def train(case, comm, backend):
    """Return all tensors of a rank after some steps and an evaluation."""
    plan = make_case_plan(backend, case)
    count = sum(batch.size for batch in plan.batches)
    images = RandomImages(NETWORK.image.shape, count, plan.dtype)
    config = TrainingConfig("sgd", 0.05) if case["trains"] else None
    engine = Engine(comm, plan, images, config)
    results = {"random": torch.get_rng_state()}
    for step in range(STEPS if case["trains"] else 0):
        engine.step()
        results[f"loss {step}"] = torch.tensor(engine.loss())
    for index, stage in enumerate(engine.stages):
        state = stage.state_dict()
        results |= {f"{index} {name}": tensor.clone() for name, tensor in state.items()}
    results |= {f"logits {batch}": logits for batch, logits in engine.evaluate().items()}
    engine.free()
    return results


def compare(comm, **case):
    problems = []
    with patch_gloo_for_nccl(problems), KernelRecorder() as recorder:
        results = train(case, comm, "nccl")
    expected = train(case, comm, "mpi")
    problems += [f"first launched too late: {', '.join(late)}" for late in sorted(recorder.late)]
    if results.keys() != expected.keys():
        problems.append(f"{sorted(results)} is not {sorted(expected)}")
    problems += [
        f"{name} differs"
        for name, tensor in expected.items()
        if not torch.equal(results[name], tensor)
    ]
    return "; ".join(dict.fromkeys(problems))


def check_setting(comm, name, value, rank, message):
    """Check the error if one rank's setting lets posted receives block other work."""
    setting = {name: value} if comm.rank == rank else {}
    with (
        patch.object(opening, "explain_missing_nccl", lambda *_: ""),
        patch.dict(os.environ, setting),
    ):
        try:
            opening.open_p2p("nccl", comm, torch.device("cpu"), (0,)).free()
        except CannotRunError as error:
            return "" if str(error) == message else str(error)
    return "" if message is None else "not rejected"


def main():
    torch.set_num_threads(1)
    run_each_case(
        lambda case: 2 if "message" in case else make_layout(case).rank_count,
        lambda case, comm: (check_setting if "message" in case else compare)(comm, **case),
        idle="",
    )


main()
