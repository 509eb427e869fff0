"""Models with fused layers, which share halo exchanges, compared with one process.

A step of each model on real ranks is compared in float64: the loss, gradients of the images and of
all parameters, running statistics, and the logits of an evaluation. One launch runs all cases.
"""

import pytest

from spbench_core.layout.tiles import Grid, parse_pair
from support.model_errors import assert_errors_below, find_large_errors
from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

CLOSE = 1e-10
FAR = 1e-3
KINDS = {"loss", "input", "gradients", "statistics", "logits"}


def make_network(model, *image, **config):
    return {"model": model, "image": list(image), "config": config}


# Blocks 2 and 3 of the first three networks halve the map, and their shortcuts have a stride.
V1 = make_network("resnet", 65, 96, version=1, depth=8, width=4)
V2 = make_network("resnet", 62, 62, version=2, depth=11, width=4)
DEEPER = make_network("resnet", 62, 62, version=1, depth=14, width=4)
RESNET50 = make_network("resnet", 45, 64, arch="resnet50", width=4)
AMOEBANET = make_network("amoebanet", 64, 64, num_layers=3, num_filters=8)
PUBLISHED = make_network("amoebanet", 64, 96, num_layers=3, num_filters=12, pool3="max", shift=True)


DEFAULTS = {"mirrored": False, "statistics": "image"}


def make_case(network, fused_layers, *grids, balance, fault=None, **fields):
    layout = {"fused_layers": fused_layers, "grids": list(grids), "balance": list(balance)}
    layout["stages"] = len(balance)
    return network | DEFAULTS | layout | fields | {"fault": fault}


# Networks with their balance, and by fused_layers the messages that rank 0 sends for halos and
# their gradients in a step of two micro-batches.
MESSAGES = {
    "V1": (V1, (4, 1), {0: 72, 1: 48, 2: 24}),
    "AmoebaNet": (AMOEBANET, (5, 4), {0: 190, 1: 78, 3: 36}),
}
COUNTED = [
    make_case(network, fused, "2x2", balance=balance)
    for network, balance, messages in MESSAGES.values()
    for fused in messages
]
OTHERS = [
    make_case(DEEPER, 3, "2x3", balance=(8,)),
    make_case(V2, 2, "2x3", balance=(5,)),
    make_case(V1, 3, "1x3", balance=(4, 1)),
    make_case(RESNET50, 2, "2x2", balance=(6, 12)),
    make_case(PUBLISHED, 2, "1x3", balance=(5, 4)),
    # All layers in one group: halos wider than tiles come from more ranks than the neighbours.
    make_case(DEEPER, 7, "6x1", balance=(8,)),
    make_case(V1, 2, "2x2", "1x2", balance=(2, 3)),
    make_case(V2, 2, "2x2", "2x1", balance=(2, 3), mirrored=True),
    make_case(V2, 2, "2x2", balance=(4, 1), statistics="replicas"),
]
FAULTS = {
    # A fault, and the kinds of tensors that it must change.
    "corrupted-halo": {"loss", "input", "gradients", "statistics", "logits"},
    "no-mask": {"loss", "input", "gradients", "statistics", "logits"},
    "copies-counted": {"loss", "input", "gradients", "statistics", "logits"},
}
FAULTY = [make_case(V1, 2, "2x2", balance=(4, 1), fault=fault) for fault in FAULTS]
CORRECT = COUNTED + OTHERS
CASES = CORRECT + FAULTY
SAMPLE = CaseSample(CASES, lambda case: (case["model"], case["fault"]), always=COUNTED, stride=8)


def count_ranks(case):
    tiles = [Grid(*parse_pair(grid)).size for grid in case["grids"]]
    return sum(tiles) + len(case["balance"]) - len(tiles)


def describe_case(case):
    config = (f"{key}={value}" for key, value in case["config"].items())
    options = (f"{key}={case[key]}" for key in DEFAULTS if case[key] != DEFAULTS[key])
    layout = [*case["grids"], f"fused_layers={case['fused_layers']}"]
    return " ".join([case["model"], *config, *layout, *options])


@pytest.fixture(scope="module")
def find_results(request, tmp_path_factory):
    """Run the cases once; return a function for the results of a case by rank."""
    folder = tmp_path_factory.mktemp("fused")
    cases = SAMPLE.select_requested(request)
    results = run_cases_on_ranks(max(map(count_ranks, cases)), "fuse_models.py", folder, cases)
    return lambda case: results[cases.index(case)]


def list_errors(find_results, case):
    """Return the errors of each rank, or its exception."""
    return [result.get("errors", result) for result in find_results(case)]


@pytest.mark.parametrize("case", SAMPLE.make_params(CORRECT), ids=describe_case)
def test_model_with_fused_layers_equals_one_rank(find_results, case):
    assert_errors_below(list_errors(find_results, case), count_ranks(case), KINDS, CLOSE)


@pytest.mark.parametrize("name", MESSAGES)
def test_fused_layers_save_messages(find_results, name):
    network, balance, expected = MESSAGES[name]
    cases = {fused: make_case(network, fused, "2x2", balance=balance) for fused in expected}
    messages = {fused: find_results(case)[0]["messages"] for fused, case in cases.items()}
    assert messages == expected


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case["fault"])
def test_detects_faults_of_fused_layers(find_results, case):
    assert find_large_errors(list_errors(find_results, case), KINDS, FAR) >= FAULTS[case["fault"]]
