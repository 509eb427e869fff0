"""A script of one's own: the library trains as plain torch does, and says what is wrong where."""

import re

import pytest
import torch
from torch.nn import functional

from mpi.programs import train_own
from spbench_core.layout.tiles import Box
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 6
WORDS = {"batch_size": 4, "optimizer": "adam", "learning_rate": 0.01, "precision": "fp64"}
WHOLE = Box((0, 24), (0, 36))


def case(ranks, network, wrong=None, **words):
    return {"ranks": ranks, "network": network, "words": WORDS | words, "wrong": wrong}


TRAINED = {
    "one rank": case(1, "UNet"),
    "three stages": case(3, "UNet", stages=3, micro_batches=2),
    "tiles": case(4, "UNet", grids=["2x2"], verify=False),
    "tiles and members": case(6, "UNet", stages=2, grids=["2x2"], members=2, micro_batches=2),
    "tiles as far as maps go": case(3, "Attention", stages=2, grids=["1x2"]),
    "two replicas": case(2, "UNet", replicas=2, batch_size=2),
    "masks on tiles": case(6, "Segmenter", grids=["2x3"], verify=False),
}
UNVERIFIED = {
    f"{name}, verify {verify}": case(
        TRAINED[name]["ranks"],
        TRAINED[name]["network"],
        **TRAINED[name]["words"] | {"verify": verify},
    )
    for name in ("tiles and members", "two replicas")
    for verify in (False, "full")
}
"""Cases that are trained once more, without the comparison or with one at full size."""
WRONG = {
    "ranks": (case(3, "UNet", stages=2), "the layout has 2 ranks, and there are 3: start it with"),
    "weights": (case(2, "UNet", "weights", stages=2), "rank 1: its module has other weights"),
    "operators": (
        case(2, "UNet", "operators", stages=2),
        "network UNet: rank 1 has other operators or constants than rank 0",
    ),
    "stages": (case(2, "UNet", stages=2, members=0), r"rank \d: a stage has at least one rank"),
    "balance": (case(2, "UNet", stages=2, balance=[1, 2]), r"rank \d: 1,2 has 3 layers, the model"),
    "tiles of vectors": (
        case(3, "Attention", stages=2, grids=["1x2"], balance=[2, 3]),
        r"rank \d: stage 1 begins with 1x1 pixels, too few for a grid of 1x2",
    ),
    "loss": (case(1, "UNet", loss="dice"), "rank 0: loss dice is of pixels' classes"),
    "word": (case(1, "UNet", precision="fp8"), "rank 0: precision 'fp8' is none of fp32, fp64"),
    "schedule": (
        case(2, "UNet", grids=["1x2"], schedule="zb-h1"),
        r"rank \d: schedule zb-h1 cannot be had with grids; take 1f1b",
    ),
    "targets": (case(1, "UNet", "targets"), r"rank 0: targets have the shape \[5\], and must"),
    "stale entry": (
        case(2, "UNet", "stale entry", stages=2),
        "entry middle.conv1.weight of the state_dict is off by .* on one process .2 training steps",
    ),
    "frozen counter": (
        case(2, "UNet", "frozen counter", stages=2),
        "entry down1.bn1.num_batches_tracked of the state_dict is off by",
    ),
    "no memory": (
        case(2, "UNet", "no memory", stages=2),
        r"network UNet: there is no memory to compare .* verify=False .* [(]CUDA out of memory",
    ),
    "perturbed weight": (
        case(4, "UNet", "perturbed weight", grids=["2x2"]),
        "network UNet: .* is off by .*, compared with the module on one process",
    ),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    cases = TRAINED | UNVERIFIED | {name: one for name, (one, _) in WRONG.items()}
    cases = {name: one | {"save": str(folder / f"{name}.pt")} for name, one in cases.items()}
    answers = run_cases_on_ranks(RANKS, "train_own.py", folder, list(cases.values()))
    return folder, dict(zip(cases, answers, strict=True))


def plainly(one):
    """Losses and weights of plain torch, micro-batch by micro-batch; a loss is a mean."""
    words = one["words"]
    network = train_own.network_of(one, 4).double()
    optimizer = torch.optim.Adam(network.parameters(), words["learning_rate"])
    replicas = words.get("replicas", 1)
    parts = replicas if replicas > 1 else words.get("micro_batches", 1)
    count = 4 // parts
    losses = []
    for step in range(train_own.STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(parts):
            images = range(part * count, (part + 1) * count)
            made = network(train_own.pixels(step, images, WHOLE).double())
            made = made["out"] if isinstance(made, dict) else made
            segments = made.dim() == 4
            targets = (train_own.masks if segments else train_own.classes)(step, images, WHOLE)
            loss = functional.cross_entropy(made, targets) / parts
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses, network.state_dict()


@pytest.mark.parametrize("name", TRAINED)
def test_losses_and_weights_are_those_of_plain_torch(said, name):
    folder, answers = said
    losses, state = plainly(TRAINED[name])
    for answer in answers[name]:
        assert answer["losses"] == pytest.approx(losses, rel=1e-9)
    saved = torch.load(folder / f"{name}.pt", weights_only=True)
    assert saved.keys() == state.keys()
    for key, one in state.items():
        # Of replicas statistics are those of the first one's images.
        if "running" not in key and "tracked" not in key:
            torch.testing.assert_close(saved[key].double(), one.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNVERIFIED)
def test_the_comparison_with_the_module_changes_nothing(said, name):
    folder, answers = said
    usual, verify = name.split(", verify ")
    for verified, other in zip(answers[usual], answers[name], strict=True):
        assert verified["losses"] == other["losses"]
        assert verified["numbers"] == other["numbers"]
        assert verified["same"]
        assert verified["verified"].startswith("2 training steps of ")
        assert (other["verified"] is None) == (verify == "False")
    states = [torch.load(folder / f"{each}.pt", weights_only=True) for each in (usual, name)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())


def test_logits_are_on_ranks_of_the_last_stage(said):
    _, answers = said
    assert [one["shapes"] for one in answers["three stages"]] == [[], [], [[2, 5], [2, 5]]]
    # Tiles have those of their own pixels.
    shapes = [one["shapes"] for one in answers["masks on tiles"]]
    assert shapes == [[[4, 5, 12, 12]]] * 6


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_rank(said, name):
    _, answers = said
    for answer in answers[name]:
        assert re.search(WRONG[name][1], answer["error"])
