"""Networks with shared weights, hooks or statistics: equal to torch or rejected.

A network is rejected before the first step, with the same message on every rank.
"""

import re
from typing import Any

import pytest
import torch

from mpi.programs import train_own
from spbench_core.layout.tiles import Box
from support.networks import shared_weights_networks
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

WHOLE = Box((0, train_own.SIZE[0]), (0, train_own.SIZE[1]))
RATE = 0.1
OPTIONS = {"batch_size": 4, "learning_rate": RATE, "precision": "fp64"}
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "stages": (2, {"stages": 2}),
    "tiles": (2, {"grids": ["1x2"]}),
    "members": (2, {"members": 2}),
    "tiles and a stage": (5, {"grids": ["2x2"], "stages": 2}),
    "ends in members": (3, {"stages": 2, "members": [1, 2]}),
    "two micro-batches": (2, {"stages": 2, "micro_batches": 2}),
}
VERIFIED = {"verified stages": (2, {"stages": 2})}
EVERYWHERE = [
    *("TwoNames", "TwoNamesFirst", "NotSaved", "Renamed"),
    *("TiedConvs", "TiedBiases", "TiedNorms", "TiedUnused", "TiedFunction", "TiedFunctionOfOther"),
    *("TiedHeads", "TiedChannelsLast", "Hooked", "HookedTwice", "Patched"),
    *("Lists", "TiedFlat", "TiedKinds", "TiedGathered", "Removed"),
]
"""Networks that are correct in all layouts."""
MICRO_BATCHED = "stages", "members", "two micro-batches"
COMPUTED = [
    f"Computed:variant={variant},part={part}"
    for variant in ("weight_norm", "spectral_norm", "pruned", "parametrize", "new_weight_norm")
    for part in ("d", "head")
]
MIXING = [
    f"Mixed:variant={variant}"
    for variant in ("function", "centred", "hidden", "first_image", "alike")
]
SIZED = [
    f"Asks:variant={variant}"
    for variant in (
        *("remainder", "integer", "length", "loop", "unpacked", "coordinates", "same_shape"),
        *("expanded", "scaled"),
    )
]
APART = [
    f"Mixed:variant={variant}" for variant in ("groups", "windows", "attention_of_pixels", "roll")
]
CASES = [
    *((network, layout) for network in (*EVERYWHERE, *APART, *SIZED) for layout in LAYOUTS),
    *((network, layout) for network in COMPUTED for layout in MICRO_BATCHED),
    *((network, "tiles") for network in COMPUTED if network.endswith("head")),
    *((network, layout) for network in MIXING for layout in ("stages", "tiles")),
    ("UsedTwice", "stages"),
    ("UsedTwice", "members"),
    ("SharedBlock", "stages"),
    ("SharedBlock", "members"),
    ("SharedBlock", "two micro-batches"),
    ("Mixed:variant=function", "two micro-batches"),
]
REJECTED = {
    ("Mixed:variant=function", "members"): "batch_norm mixes the images of a batch, and ranks",
    (
        "Mixed:variant=function",
        "ends in members",
    ): "batch_norm mixes the images of a batch, and ranks",
    (
        "Mixed:variant=centred",
        "two micro-batches",
    ): "mean mixes the images of a batch, and micro-batch",
    (
        "Computed:variant=new_weight_norm,part=d",
        "tiles",
    ): "d computes its weights from parametrizations",
    ("UsedTwice", "tiles"): "d is used twice, which cannot be over tiles",
    ("HookedTwice", "verified stages"): "(HookedTwice), and a copy of the network would use the "
    "same one; make it a method of a module, or skip the comparison with verify=False",
}
OFTEN = {
    *(("TwoNames", "stages"), ("TwoNames", "tiles"), ("TiedBiases", "members")),
    *(("TiedConvs", "tiles"), ("TiedNorms", "tiles"), ("TiedFunction", "stages")),
    *(
        ("Computed:variant=weight_norm,part=d", "stages"),
        ("Computed:variant=spectral_norm,part=d", "members"),
    ),
    *(
        ("Mixed:variant=function", "stages"),
        ("Mixed:variant=centred", "tiles"),
        ("UsedTwice", "stages"),
    ),
    *(("Mixed:variant=windows", "members"), ("Mixed:variant=function", "two micro-batches")),
    *(("Asks:variant=remainder", "tiles"), ("Asks:variant=integer", "tiles")),
    *(("Asks:variant=coordinates", "tiles"), ("Asks:variant=unpacked", "members")),
    ("HookedTwice", "verified stages"),
    *(("Hooked", "stages"), ("Hooked", "tiles"), ("Hooked", "members"), ("Patched", "tiles")),
}
"""Cases in all runs of the tests; others run in long tests only."""


def make_case(network, layout):
    ranks, options = (LAYOUTS | VERIFIED)[layout]
    name, _, arguments = network.partition(":")
    return {
        "ranks": ranks,
        "networks": "support.networks.shared_weights_networks",
        "network": name,
        "arguments": dict(pair.split("=") for pair in arguments.split(",") if pair),
        # The comparison of the library doubles the time, so only some cases have it.
        "options": OPTIONS | options | {"verify": (network, layout) in OFTEN},
    }


def mark_long(cases):
    return [
        key if key in OFTEN else pytest.param(*key, marks=pytest.mark.long, id="-".join(key))
        for key in cases
    ]


@pytest.fixture(scope="module")
def case_results(request, tmp_path_factory):
    """Run all cases in one launch; return file and results by network and layout."""
    tests = [test for test in request.session.items if test.path == request.path]
    params = [test.callspec.params for test in tests if hasattr(test, "callspec")]
    keys = [(param["network"], param["layout"]) for param in params] or [("TwoNames", "tiles")]
    folder = tmp_path_factory.mktemp("shared")
    files = {key: str(folder / f"{' '.join(key)}.pt") for key in dict.fromkeys(keys)}
    cases = [make_case(*key) | {"save": file} for key, file in files.items()]
    ranks = max(case["ranks"] for case in cases)
    results = run_cases_on_ranks(ranks, "train_own.py", folder, cases, seconds=500)
    return {key: (files[key], result) for key, result in zip(files, results, strict=True)}


def train_with_torch(network, parts):
    """Return losses and state_dict of plain torch, with the same micro-batches."""
    module = train_own.make_network(make_case(network, "stages"), 4).double()
    optimizer = torch.optim.SGD(module.parameters(), RATE, 0.9)
    losses = []
    for step in range(train_own.STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(parts):
            images = range(part * 4 // parts, (part + 1) * 4 // parts)
            logits = module(train_own.pixels(step, images, WHOLE).double())
            targets = train_own.classes(step, images, WHOLE)
            loss = torch.nn.functional.cross_entropy(logits, targets) / parts
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses, module.state_dict()


@pytest.mark.parametrize(("network", "layout"), mark_long(CASES))
def test_losses_and_state_equal_plain_torch(case_results, network, layout):
    file, rank_results = case_results[network, layout]
    losses, state = train_with_torch(network, LAYOUTS[layout][1].get("micro_batches", 1))
    for result in rank_results:
        assert result.get("error") is None
        assert result["losses"] == pytest.approx(losses, rel=1e-9)
    saved = torch.load(file, weights_only=True)
    assert list(saved) == list(state)
    for name, tensor in state.items():
        torch.testing.assert_close(saved[name].double(), tensor.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("network", "layout"), REJECTED)
def test_impossible_layout_is_rejected_on_every_rank(case_results, network, layout):
    _, rank_results = case_results[network, layout]
    (error,) = {result["error"] for result in rank_results}
    assert REJECTED[network, layout] in error
    assert re.search(r"shared_weights_networks.py:\d+: ", error)


@pytest.mark.parametrize(("network", "layout"), [("TwoNames", "tiles")])
def test_saved_weights_load_under_every_name(case_results, network, layout):
    file, _ = case_results[network, layout]
    module = shared_weights_networks.TwoNames()
    saved = torch.load(file, weights_only=True)
    module.load_state_dict(saved)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, saved[name])
    assert torch.equal(module.c.weight, saved["skip.a.weight"])
