"""The library in a user's script: results equal plain torch, errors name ranks."""

import re

import pytest
import torch
from torch.nn import functional

from mpi.programs import train_own
from spbench_core.layout.tiles import Box
from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 6
OPTIONS = {"batch_size": 4, "optimizer": "adam", "learning_rate": 0.01, "precision": "fp64"}
WHOLE = Box((0, 24), (0, 36))


def make_case(ranks, network, fault=None, **options):
    return {"ranks": ranks, "network": network, "options": OPTIONS | options, "fault": fault}


TRAINED = {
    "one rank": make_case(1, "UNet"),
    "three stages": make_case(3, "UNet", stages=3, micro_batches=2),
    "tiles": make_case(4, "UNet", grids=["2x2"], verify=False),
    "tiles and members": make_case(6, "UNet", stages=2, grids=["2x2"], members=2, micro_batches=2),
    "tiles as far as maps go": make_case(3, "Attention", stages=2, grids=["1x2"]),
    "two replicas": make_case(2, "UNet", replicas=2, batch_size=2),
    "masks on tiles": make_case(6, "Segmenter", grids=["2x3"], verify=False),
}
UNVERIFIED = {
    f"{name}, verify {verify}": make_case(
        TRAINED[name]["ranks"],
        TRAINED[name]["network"],
        **TRAINED[name]["options"] | {"verify": verify},
    )
    for name in ("two replicas", "tiles and members")
    for verify in (False, "full")
}
"""Cases that are trained again, without the comparison or with one at full size."""
WRONG = {
    "ranks": (
        make_case(3, "UNet", stages=2),
        "the layout has 2 ranks, and there are 3: start it with",
    ),
    "weights": (make_case(2, "UNet", "weights", stages=2), "rank 1: its module has other weights"),
    "operators": (
        make_case(2, "UNet", "operators", stages=2),
        "network UNet: rank 1 has other operators or constants than rank 0",
    ),
    "stages": (
        make_case(2, "UNet", stages=2, members=0),
        r"rank \d: a stage has at least one rank",
    ),
    "balance": (
        make_case(2, "UNet", stages=2, balance=[1, 2]),
        r"rank \d: 1,2 has 3 layers, the model",
    ),
    "tiles of vectors": (
        make_case(3, "Attention", stages=2, grids=["1x2"], balance=[2, 3]),
        r"rank \d: stage 1 begins with 1x1 pixels, too few for a grid of 1x2",
    ),
    "loss": (make_case(1, "UNet", loss="dice"), "rank 0: loss dice is of pixels' classes"),
    "word": (
        make_case(1, "UNet", precision="fp8"),
        "rank 0: precision 'fp8' is none of fp32, fp64",
    ),
    "schedule": (
        make_case(2, "UNet", grids=["1x2"], schedule="zb-h1"),
        r"rank \d: schedule zb-h1 cannot be had with grids; take 1f1b",
    ),
    "targets": (make_case(1, "UNet", "targets"), r"rank 0: targets have the shape \[5\], and must"),
    "stale entry": (
        make_case(2, "UNet", "stale entry", stages=2),
        "entry middle.conv1.weight of the state_dict is off by .* on one process .2 training steps",
    ),
    "frozen counter": (
        make_case(2, "UNet", "frozen counter", stages=2),
        "entry down1.bn1.num_batches_tracked of the state_dict is off by",
    ),
    "no memory": (
        make_case(2, "UNet", "no memory", stages=2),
        r"network UNet: there is no memory to compare .* verify=False .* [(]CUDA out of memory",
    ),
    "perturbed weight": (
        make_case(4, "UNet", "perturbed weight", grids=["2x2"]),
        "network UNet: .* is off by .*, compared with the module on one process",
    ),
}


SAMPLE = CaseSample([*UNVERIFIED], lambda name: name.partition(", verify ")[2])


@pytest.fixture(scope="module")
def case_results(request, tmp_path_factory):
    """Run the cases in one launch, of `UNVERIFIED` only those of the selected tests."""
    folder = tmp_path_factory.mktemp("library")
    unverified = {name: UNVERIFIED[name] for name in SAMPLE.select_requested(request)}
    cases = TRAINED | unverified | {name: case for name, (case, _) in WRONG.items()}
    cases = {name: case | {"save": str(folder / f"{name}.pt")} for name, case in cases.items()}
    results = run_cases_on_ranks(RANKS, "train_own.py", folder, list(cases.values()))
    return folder, dict(zip(cases, results, strict=True))


def train_with_torch(case):
    """Return mean losses and weights of plain torch, with the same micro-batches."""
    options = case["options"]
    network = train_own.make_network(case, 4).double()
    optimizer = torch.optim.Adam(network.parameters(), options["learning_rate"])
    replicas = options.get("replicas", 1)
    parts = replicas if replicas > 1 else options.get("micro_batches", 1)
    count = 4 // parts
    losses = []
    for step in range(train_own.STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(parts):
            images = range(part * count, (part + 1) * count)
            logits = network(train_own.pixels(step, images, WHOLE).double())
            logits = logits["out"] if isinstance(logits, dict) else logits
            segments = logits.dim() == 4
            targets = (train_own.masks if segments else train_own.classes)(step, images, WHOLE)
            loss = functional.cross_entropy(logits, targets) / parts
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses, network.state_dict()


@pytest.mark.parametrize("name", TRAINED)
def test_losses_and_weights_equal_plain_torch(case_results, name):
    folder, results = case_results
    losses, state = train_with_torch(TRAINED[name])
    for result in results[name]:
        assert result["losses"] == pytest.approx(losses, rel=1e-9)
    saved = torch.load(folder / f"{name}.pt", weights_only=True)
    assert saved.keys() == state.keys()
    for key, tensor in state.items():
        # With replicas, the statistics are those of the images of the first replica.
        if "running" not in key and "tracked" not in key:
            torch.testing.assert_close(saved[key].double(), tensor.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SAMPLE.make_params(UNVERIFIED))
def test_verification_does_not_change_the_results(case_results, name):
    folder, results = case_results
    usual, verify = name.split(", verify ")
    for verified, other in zip(results[usual], results[name], strict=True):
        assert verified["losses"] == other["losses"]
        assert verified["numbers"] == other["numbers"]
        assert verified["same"]
        assert verified["verified"].startswith("2 training steps of ")
        assert (other["verified"] is None) == (verify == "False")
    states = [torch.load(folder / f"{case}.pt", weights_only=True) for case in (usual, name)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())


def test_logits_are_on_ranks_of_the_last_stage(case_results):
    _, results = case_results
    assert [result["shapes"] for result in results["three stages"]] == [[], [], [[2, 5], [2, 5]]]
    # Tiles have the logits of their pixels.
    shapes = [result["shapes"] for result in results["masks on tiles"]]
    assert shapes == [[[4, 5, 12, 12]]] * 6


@pytest.mark.parametrize("name", WRONG)
def test_error_names_its_rank(case_results, name):
    _, results = case_results
    for result in results[name]:
        assert re.search(WRONG[name][1], result["error"])
