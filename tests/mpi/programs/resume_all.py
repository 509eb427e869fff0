"""Trains models without a break, and with a break and another layout after it.

    mpirun -n 5 python -m mpi4py resume_all.py CASES.json RESULTS.json

The cases are those of `tests/mpi/test_checkpoints.py`: ``before`` and ``after`` are layouts. The
result of rank 0 has ``steps`` and ``rate`` of the checkpoint, and the largest difference by kind
between two models after three steps. One trained all steps in the first layout, and the other one
trained the last step in the second layout. For a broken file, the result has the message of each
rank.
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from spbench_core.layout.micro_batches import split_batch
from spbench_parallel.checkpoints.checkpoint import load, save
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.images.sources import open_images
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision.formats import PRECISIONS
from support.trained_models import CLASSES, make_layout, make_network, make_plan

BATCH = 4
PARTS = 2
BREAK = 2
STEPS = 3
RATE = 0.05
DECAY = 0.01
RATE_FACTOR = 0.5
SCALE = 128.0


class TrainedModel:
    """A model on the first ranks of the job; the other ranks have no part."""

    def __init__(self, world, case, layout, trains=True):
        self.layout = make_layout(layout)
        self.comm = world.Split(0 if world.rank < self.layout.rank_count else MPI.UNDEFINED)
        self.takes_part = self.comm != MPI.COMM_NULL
        if not self.takes_part:
            return
        network = make_network({"image": [32, 32], **case})
        # Each half of a mirrored step is one micro-batch, so that all layouts have equal ones.
        mirrored = self.layout.mirrored
        batches = split_batch(BATCH, 1 if mirrored else PARTS, mirrored=mirrored)
        plan = make_plan(
            network,
            self.layout,
            batches,
            schedule="interleaved" if self.layout.rounds > 1 else "1f1b",
            seed=case.get("seed", 1),
            precision=PRECISIONS[case.get("precision", "fp64")],
            transport="packed",
            master_comm=layout.get("one_way", False),
            fused_layers=layout.get("fused_layers", 0),
        )
        self.images = open_images(
            "synthetic",
            image=network.image,
            num_classes=CLASSES,
            batch=BATCH,
            replicas=self.layout.replicas,
            seed=3,
            dtype=plan.dtype,
        )
        config = TrainingConfig(case["optimizer"], RATE, DECAY, RATE_FACTOR) if trains else None
        self.engine = Engine(self.comm, plan, self.images, config)

    def train(self, first, last):
        for step in range(first, last):
            self.images.set_step(step)
            self.engine.step()
            self.engine.end_epoch()
        return self.engine.loss()

    def close(self):
        if self.takes_part:
            self.engine.free()
            self.comm.Free()


def run_resume_case(world, case, folder):
    """Return differences of the resumed model from one without a break, on rank 0."""
    broken, unbroken_path, resumed_path = (folder / name for name in ("broken", "one", "other"))
    first = TrainedModel(world, case, case["before"])
    losses: dict[str, float] = {}
    result: dict[str, float] = {}
    if first.takes_part:
        first.train(0, BREAK)
        if first.engine.arithmetic.loss_scale is not None:
            first.engine.arithmetic.loss_scale.value = SCALE
        save(broken, first.engine, BREAK)
        losses["unbroken"] = first.train(BREAK, STEPS)
        save(unbroken_path, first.engine, STEPS)
    sleep_at_barrier(world)
    # Another seed, so that tensors which are not loaded differ.
    second = TrainedModel(world, case | {"seed": 2}, case["after"])
    if second.takes_part:
        result["steps"] = BREAK
        if "unread" not in case:
            weights_only = case.get("weights_only", False)
            result["steps"] = load(broken, second.engine, weights_only=weights_only)
        result["rate"] = second.engine.trainer.learning_rate
        result["scale"] = second.engine.arithmetic.scale
        losses["resumed"] = second.train(result["steps"], STEPS)
        save(resumed_path, second.engine, STEPS)
    first.close()
    second.close()
    if world.rank:
        return None
    return result | {
        "loss": abs(losses["unbroken"] - losses["resumed"]),
        **compute_differences(unbroken_path, resumed_path),
    }


def compute_differences(unbroken_path, resumed_path):
    unbroken, resumed = (read_tensors(path) for path in (unbroken_path, resumed_path))
    differences = {}
    for kind, expected in unbroken.items():
        assert expected.keys() == resumed[kind].keys(), kind
        differences[kind] = max(
            float((tensor - resumed[kind][name]).abs().max()) for name, tensor in expected.items()
        )
        differences[f"{kind} counted"] = len(expected)
    return differences


def read_tensors(path):
    """Return the weights and the states of the optimizer in a checkpoint, by name."""
    checkpoint = torch.load(path, weights_only=True)
    states = {
        f"{name} {key}": tensor
        for name, state in checkpoint["states"].items()
        for key, tensor in state.items()
    }
    return {"weights": checkpoint["weights"], "states": states}


def run_evaluate_case(world, case, folder):
    """Return the difference of logits of loaded and first model, on rank 0."""
    first = TrainedModel(world, case, case["before"])
    logits = {}
    if first.takes_part:
        first.train(0, BREAK)
        save(folder / "learnt", first.engine, BREAK)
        logits["first"] = first.comm.gather(first.engine.evaluate())
    sleep_at_barrier(world)
    second = TrainedModel(world, case | {"seed": 2}, case["after"], trains=False)
    if second.takes_part:
        second.images.set_step(BREAK - 1)
        load(folder / "learnt", second.engine, weights_only=True)
        logits["second"] = second.comm.gather(second.engine.evaluate())
    first.close()
    second.close()
    if world.rank:
        return None
    first_logits, second_logits = (
        {key: value for rank_logits in parts for key, value in rank_logits.items()}
        for parts in logits.values()
    )
    assert first_logits.keys() == second_logits.keys() == {0, 1}
    differences = [(first_logits[key] - second_logits[key]).abs().max() for key in first_logits]
    return {"logits": float(max(differences))}


def run_reject_case(world, case, folder):
    """Return the message of each rank for a damaged file, or one of another model."""
    path = folder / "checkpoint"
    first = TrainedModel(world, case, case["before"])
    if first.takes_part:
        first.train(0, 1)
        save(path, first.engine, 1)
    if world.rank == 0:
        damage_file(path, case["damage"])
    sleep_at_barrier(world)
    second = TrainedModel(world, case | case.get("other", {}), case["after"])
    rank_result: Any = None
    if second.takes_part:
        before = copy_weights(second)
        message = None
        if case["damage"] == "unseen" and world.rank == 1:
            path = path.with_name("elsewhere")
        if case["damage"] == "folder":
            path = folder / "none" / "checkpoint"
        try:
            if case["damage"] == "folder":
                save(path, second.engine, 1)
            else:
                load(path, second.engine)
        except CannotRunError as error:
            message = str(error).replace(str(folder), "FOLDER")
        unchanged = all(map(torch.equal, before, copy_weights(second)))
        rank_result = [message, unchanged]
    first.close()
    second.close()
    rank_results = world.gather(rank_result)
    return None if world.rank else [result for result in rank_results if result is not None]


def copy_weights(model):
    return [
        tensor.detach().clone()
        for stage in model.engine.stages
        for tensor in stage.state_dict().values()
    ]


def damage_file(path, kind):
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    if kind in ("tensor", "state", "schema", "plain"):
        checkpoint = torch.load(path, weights_only=True)
        name = "stack1_block1.main.conv1.weight"
        if kind == "tensor":
            del checkpoint["weights"][name]
        if kind == "state":
            del checkpoint["states"][name]
        if kind == "schema":
            checkpoint["schema"] = "spbench.checkpoint/0"
        torch.save(checkpoint["weights"] if kind == "plain" else checkpoint, path)


ACTIONS = {"resume": run_resume_case, "evaluate": run_evaluate_case, "reject": run_reject_case}


def main():
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    results = []
    for index, case in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        start = time.monotonic()
        folder = Path(sys.argv[2]).parent / str(index)
        if world.rank == 0:
            folder.mkdir()
        sleep_at_barrier(world)
        try:
            results.append(ACTIONS[case["action"]](world, case, folder))
        except Exception:
            # End all ranks, because the others wait for this one.
            traceback.print_exc()
            sys.stderr.flush()
            world.Abort(1)
        if world.rank == 0:
            print(f"{time.monotonic() - start:.2f} s", case, results[-1], flush=True)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
