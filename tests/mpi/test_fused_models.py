"""Models whose layers share halo exchanges are the models without, on real ranks.

A step of each is held against one process in float64: the loss, gradients of the images and of all
parameters, running statistics, and then the logits of an evaluation. One launch does all.
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


def net(model, *image, **config):
    return {"model": model, "image": list(image), "config": config}


# The blocks 2 and 3 of all three halve the map, and their shortcuts have a stride.
V1 = net("resnet", 65, 96, version=1, depth=8, width=4)
V2 = net("resnet", 62, 62, version=2, depth=11, width=4)
DEEPER = net("resnet", 62, 62, version=1, depth=14, width=4)
RESNET50 = net("resnet", 45, 64, arch="resnet50", width=4)
AMOEBANET = net("amoebanet", 64, 64, num_layers=3, num_filters=8)
PUBLISHED = net("amoebanet", 64, 96, num_layers=3, num_filters=12, pool3="max", shift=True)


PLAIN = {"mirrored": False, "statistics": "image"}


def case(network, fused_layers, *grids, balance, fault=None, **more):
    words = {"fused_layers": fused_layers, "grids": list(grids), "balance": list(balance)}
    words["stages"] = len(balance)
    return network | PLAIN | words | more | {"fault": fault}


# By fused_layers, messages of rank 0 for halos and their gradients in a step of two micro-batches.
MESSAGES = {
    "V1": (V1, (4, 1), {0: 72, 1: 48, 2: 24}),
    "AmoebaNet": (AMOEBANET, (5, 4), {0: 190, 1: 78, 3: 36}),
}
COUNTED = [
    case(network, fused, "2x2", balance=balance)
    for network, balance, messages in MESSAGES.values()
    for fused in messages
]
OTHERS = [
    case(DEEPER, 3, "2x3", balance=(8,)),
    case(V2, 2, "2x3", balance=(5,)),
    case(V1, 3, "1x3", balance=(4, 1)),
    case(RESNET50, 2, "2x2", balance=(6, 12)),
    case(PUBLISHED, 2, "1x3", balance=(5, 4)),
    # All layers in one group: halos wider than tiles come from more ranks than those beside.
    case(DEEPER, 7, "6x1", balance=(8,)),
    case(V1, 2, "2x2", "1x2", balance=(2, 3)),
    case(V2, 2, "2x2", "2x1", balance=(2, 3), mirrored=True),
    case(V2, 2, "2x2", balance=(4, 1), statistics="replicas"),
]
FAULTS = {
    # A fault, and the kinds of tensors that must show it.
    "corrupted-halo": {"loss", "input", "gradients", "statistics", "logits"},
    "no-mask": {"loss", "input", "gradients", "statistics", "logits"},
    "copies-counted": {"loss", "input", "gradients", "statistics", "logits"},
}
WRONG = [case(V1, 2, "2x2", balance=(4, 1), fault=fault) for fault in FAULTS]
RIGHT = COUNTED + OTHERS
CASES = RIGHT + WRONG
SAMPLE = CaseSample(CASES, lambda words: (words["model"], words["fault"]), always=COUNTED, stride=8)


def ranks_of(words):
    tiles = [Grid(*parse_pair(grid)).size for grid in words["grids"]]
    return sum(tiles) + len(words["balance"]) - len(tiles)


def name_of(words):
    config = (f"{key}={value}" for key, value in words["config"].items())
    more = (f"{key}={words[key]}" for key in PLAIN if words[key] != PLAIN[key])
    places = [*words["grids"], f"fused_layers={words['fused_layers']}"]
    return " ".join([words["model"], *config, *places, *more])


@pytest.fixture(scope="module")
def answers(request, tmp_path_factory):
    """What the ranks said of a case."""
    folder = tmp_path_factory.mktemp("fused")
    cases = SAMPLE.select_requested(request)
    said = run_cases_on_ranks(max(map(ranks_of, cases)), "fuse_models.py", folder, cases)
    return lambda words: said[cases.index(words)]


def errors_of(answers, words):
    """The errors of each rank, or its exception."""
    return [answer.get("errors", answer) for answer in answers(words)]


@pytest.mark.parametrize("words", SAMPLE.make_params(RIGHT), ids=name_of)
def test_a_model_with_fused_layers_is_the_model_on_one_rank(answers, words):
    assert_errors_below(errors_of(answers, words), ranks_of(words), KINDS, CLOSE)


@pytest.mark.parametrize("name", MESSAGES)
def test_fused_layers_save_messages(answers, name):
    network, balance, expected = MESSAGES[name]
    cases = {fused: case(network, fused, "2x2", balance=balance) for fused in expected}
    found = {fused: answers(one)[0]["messages"] for fused, one in cases.items()}
    assert found == expected


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words["fault"])
def test_fused_layers_that_do_something_wrong_are_found_out(answers, words):
    assert find_large_errors(errors_of(answers, words), KINDS, FAR) >= FAULTS[words["fault"]]
