"""Trains models with a break after which another layout goes on, and without one.

    mpirun -n 5 python -m mpi4py resume_all.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_checkpoints.py` makes them: ``before`` and ``after`` are
layouts. A result is rank 0's: ``steps`` and ``rates`` that the file gave, and by kind the largest
difference between two models after a third step: one that learnt all three in the first layout,
and one that learnt two there and the last in the other. Of a broken file it is what each rank says.
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
SLOWER = 0.5
SCALE = 128.0


class Trained:
    """A model on the first ranks of the job; on the others nothing."""

    def __init__(self, world, case, words, learns=True):
        self.layout = make_layout(words)
        self.comm = world.Split(0 if world.rank < self.layout.ranks else MPI.UNDEFINED)
        self.takes_part = self.comm != MPI.COMM_NULL
        if not self.takes_part:
            return
        network = make_network({"image": [32, 32], **case})
        # Each half of a mirrored step is one micro-batch: together they are those of the others.
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
            master_comm=words.get("one_way", False),
            fused_layers=words.get("fused_layers", 0),
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
        learning = TrainingConfig(case["optimizer"], RATE, DECAY, SLOWER) if learns else None
        self.engine = Engine(self.comm, plan, self.images, learning)

    def learn(self, first, last):
        for step in range(first, last):
            self.images.set_step(step)
            self.engine.step()
            self.engine.end_epoch()
        return self.engine.loss()

    def close(self):
        if self.takes_part:
            self.engine.free()
            self.comm.Free()


def resumed(world, case, folder):
    """Rank 0's: how far the model that was taken up is from the one without a break."""
    broken, one, other = (folder / name for name in ("broken", "one", "other"))
    first = Trained(world, case, case["before"])
    losses: dict[str, float] = {}
    given: dict[str, float] = {}
    if first.takes_part:
        first.learn(0, BREAK)
        if first.engine.arithmetic.loss_scale is not None:
            first.engine.arithmetic.loss_scale.value = SCALE
        save(broken, first.engine, BREAK)
        losses["one"] = first.learn(BREAK, STEPS)
        save(one, first.engine, STEPS)
    sleep_at_barrier(world)
    # Of another seed: what is not loaded shows.
    second = Trained(world, case | {"seed": 2}, case["after"])
    if second.takes_part:
        given["steps"] = BREAK
        if "unread" not in case:
            weights_only = case.get("weights_only", False)
            given["steps"] = load(broken, second.engine, weights_only=weights_only)
        given["rate"] = second.engine.trainer.learning_rate
        given["scale"] = second.engine.arithmetic.scale
        losses["other"] = second.learn(given["steps"], STEPS)
        save(other, second.engine, STEPS)
    first.close()
    second.close()
    if world.rank:
        return None
    return given | {"loss": abs(losses["one"] - losses["other"]), **differences(one, other)}


def differences(one, other):
    kept = [torch.load(path, weights_only=True) for path in (one, other)]
    flat = []
    for words in kept:
        states = {
            f"{name} {word}": tensor
            for name, several in words["states"].items()
            for word, tensor in several.items()
        }
        flat.append({"weights": words["weights"], "states": states})
    found = {}
    for kind, wanted in flat[0].items():
        assert wanted.keys() == flat[1][kind].keys(), kind
        found[kind] = max(
            float((tensor - flat[1][kind][name]).abs().max()) for name, tensor in wanted.items()
        )
        found[f"{kind} counted"] = len(wanted)
    return found


def evaluated(world, case, folder):
    """Rank 0's: how far the logits of a model that was taken up to infer are from the first's."""
    first = Trained(world, case, case["before"])
    logits = {}
    if first.takes_part:
        first.learn(0, BREAK)
        save(folder / "learnt", first.engine, BREAK)
        logits["one"] = first.comm.gather(first.engine.evaluate())
    sleep_at_barrier(world)
    second = Trained(world, case | {"seed": 2}, case["after"], learns=False)
    if second.takes_part:
        second.images.set_step(BREAK - 1)
        load(folder / "learnt", second.engine, weights_only=True)
        logits["other"] = second.comm.gather(second.engine.evaluate())
    first.close()
    second.close()
    if world.rank:
        return None
    one, other = (
        {key: value for part in several for key, value in part.items()}
        for several in logits.values()
    )
    assert one.keys() == other.keys() == {0, 1}
    return {"logits": max(float((one[key] - other[key]).abs().max()) for key in one)}


def refused(world, case, folder):
    """The answer of each rank to a file that another has written, or that was damaged."""
    path = folder / "checkpoint"
    first = Trained(world, case, case["before"])
    if first.takes_part:
        first.learn(0, 1)
        save(path, first.engine, 1)
    if world.rank == 0:
        damage(path, case["damage"])
    sleep_at_barrier(world)
    second = Trained(world, case | case.get("other", {}), case["after"])
    said: Any = None
    if second.takes_part:
        before = weights_of(second)
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
            said = str(error).replace(str(folder), "FOLDER")
        unchanged = all(map(torch.equal, before, weights_of(second)))
        said = [said, unchanged]
    first.close()
    second.close()
    answers = world.gather(said)
    return None if world.rank else [one for one in answers if one is not None]


def weights_of(trained):
    return [
        one.detach().clone()
        for stage in trained.engine.stages
        for one in stage.state_dict().values()
    ]


def damage(path, how):
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    if how in ("tensor", "state", "schema", "plain"):
        words = torch.load(path, weights_only=True)
        name = "stack1_block1.main.conv1.weight"
        if how == "tensor":
            del words["weights"][name]
        if how == "state":
            del words["states"][name]
        if how == "schema":
            words["schema"] = "spbench.checkpoint/0"
        torch.save(words["weights"] if how == "plain" else words, path)


ACTIONS = {"resume": resumed, "evaluate": evaluated, "refuse": refused}


def main():
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    said = []
    for index, case in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        start = time.monotonic()
        folder = Path(sys.argv[2]).parent / str(index)
        if world.rank == 0:
            folder.mkdir()
        sleep_at_barrier(world)
        try:
            said.append(ACTIONS[case["action"]](world, case, folder))
        except Exception:
            # The others wait for this rank: end them all.
            traceback.print_exc()
            sys.stderr.flush()
            world.Abort(1)
        if world.rank == 0:
            print(f"{time.monotonic() - start:.2f} s", case, said[-1], flush=True)
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(said))


main()
