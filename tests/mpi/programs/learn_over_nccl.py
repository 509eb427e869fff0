"""Trains models whose stages talk over NCCL, and says what went wrong on each rank.

    mpirun -n 4 python -m mpi4py learn_over_nccl.py CASES.json RESULTS.json

There is no GPU here: gloo stands in for NCCL, on tensors of the host. What NCCL cannot bear is
looked for: while a receive is posted, nobody may wait for the whole device, no exchange among tiles
may be opened, since it is timed and the loser given back, and no kernel may be launched for the
first time, since loading it may wait for the whole device. And a model must learn over it what it
learns over MPI, bit by bit.
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


class Posted:
    """A receive that has been posted, and not been waited for."""

    under_way = 0

    def __init__(self, pending):
        self._pending = pending
        Posted.under_way += 1

    def wait(self):
        self._pending.wait()
        Posted.under_way -= 1


class Watch(TorchDispatchMode):
    """Kernels that have been launched, and those first launched while a receive was posted.

    A kernel is known by its operator and the number formats. Views and empty memory have none.
    """

    def __init__(self):
        super().__init__()
        self.known = set()
        self.late = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = [one.alias_info for one in function._schema.returns]
        is_view = any(one is not None and not one.is_write for one in returned)
        if not (is_view or "empty" in function._schema.name):
            leaves = tree_leaves((args, kwargs))
            formats = [str(one.dtype) for one in leaves if isinstance(one, torch.Tensor)]
            kernel = (str(function), *formats)
            if kernel not in self.known and Posted.under_way:
                self.late.add(kernel)
            self.known.add(kernel)
        return function(*args, **(kwargs or {}))


@contextmanager
def gloo_for_nccl(problems):
    """Let stages talk over gloo as if it were NCCL, and note what NCCL could not bear."""
    receive = NcclP2P.receive
    opened = Exchange.__init__

    def posting(self, messages, tag):
        return [Posted(pending) for pending in receive(self, messages, tag)]

    def waits_for_all(device=None):
        if Posted.under_way:
            problems.append(f"{Posted.under_way} receives are posted, and the device is waited for")

    def opens(self, *arguments, **words):
        if Posted.under_way:
            problems.append(f"{Posted.under_way} receives are posted, and an exchange is opened")
        opened(self, *arguments, **words)

    with ExitStack() as stack:
        for target, name, value in (
            (opening, "nccl_refusal", lambda comm, device: ""),
            (NcclP2P, "receive", posting),
            (streams, "is_gpu", lambda device: True),
            (torch.cuda, "synchronize", waits_for_all),
            (Exchange, "__init__", opens),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def plan_over(backend, case):
    words = {"classes": CLASSES}
    plan = make_plan(
        import_network("support.networks.own_networks:Levels", words, NETWORK.image, 1)
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
    every = find_routes(routes.table, routes.stages, None).skips
    assert bool(every) == case["skips"]
    return replace(plan, straight=frozenset((one.source, one.target) for one in every))


def learnt(case, comm, backend):
    """All that a rank has after some steps, and after an evaluation."""
    plan = plan_over(backend, case)
    count = sum(batch.size for batch in plan.batches)
    images = RandomImages(NETWORK.image.shape, count, plan.dtype)
    learning = TrainingConfig("sgd", 0.05) if case["learns"] else None
    engine = Engine(comm, plan, images, learning)
    found = {"random": torch.get_rng_state()}
    for step in range(STEPS if case["learns"] else 0):
        engine.step()
        found[f"loss {step}"] = torch.tensor(engine.loss())
    for index, stage in enumerate(engine.stages):
        words = {f"{index} {name}": one.clone() for name, one in stage.state_dict().items()}
        found |= words
    found |= {f"logits {key}": one for key, one in engine.evaluate().items()}
    engine.free()
    return found


def compare(comm, **case):
    problems = []
    with gloo_for_nccl(problems), Watch() as watch:
        found = learnt(case, comm, "nccl")
    expected = learnt(case, comm, "mpi")
    problems += [f"first launched too late: {', '.join(one)}" for one in sorted(watch.late)]
    if found.keys() != expected.keys():
        problems.append(f"{sorted(found)} is not {sorted(expected)}")
    problems += [
        f"{name} differs" for name, one in expected.items() if not torch.equal(found[name], one)
    ]
    return "; ".join(dict.fromkeys(problems))


def refused(comm, name, value, rank, words):
    """A setting on one rank, with which receives that are posted hold up all others' work."""
    setting = {name: value} if comm.rank == rank else {}
    with patch.object(opening, "nccl_refusal", lambda *_: ""), patch.dict(os.environ, setting):
        try:
            opening.open_p2p("nccl", comm, torch.device("cpu"), (0,)).free()
        except CannotRunError as error:
            return "" if str(error) == words else str(error)
    return "" if words is None else "not refused"


def main():
    torch.set_num_threads(1)
    run_each_case(
        lambda case: 2 if "words" in case else make_layout(case).ranks,
        lambda case, comm: (refused if "words" in case else compare)(comm, **case),
        idle="",
    )


main()
