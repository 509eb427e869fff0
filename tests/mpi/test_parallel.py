"""Models over many real ranks learn what the model on one rank learns.

Two steps of each layout are held against one process that takes the same micro-batches in the same
order, in float64 but for a few: the loss, gradients of the images and of all parameters, running
statistics, the weights, and then the logits of an evaluation. One launch does all.
"""

import pytest

from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid, parse_pair
from support.model_errors import assert_errors_below, find_large_errors
from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

CLOSE = 1e-9
FAR = 1e-4
KINDS = {"loss", "input", "gradients", "statistics", "weights", "logits"}

V1 = {"model": "resnet", "image": [32, 32], "config": {"version": 1, "depth": 8, "width": 4}}
ODD = {"model": "resnet", "image": [33, 46], "config": {"version": 1, "depth": 8, "width": 4}}
AMOEBANET = {
    "model": "amoebanet",
    "image": [64, 64],
    "config": {"num_layers": 3, "num_filters": 8},
}


PLAIN = {
    "members": 1,
    "replicas": 1,
    "mirrored": False,
    "times": 1,
    "backend": "mpi",
    "one_way": False,
}
SOLVER = {"dtype": "float64", "optimizer": "sgd"}


def case(network, stages, *grids, batch=4, parts=2, schedule="1f1b", fault=None, **more):
    ranks = PLAIN | SOLVER | more
    words = {"stages": stages, "grids": list(grids), "batch": batch, "parts": parts}
    return network | words | ranks | {"schedule": schedule, "fault": fault}


PIPELINES = [
    case(V1, 3, schedule="gpipe"),
    case(V1, 4, parts=4),
    case(V1, 2, batch=5),
    # In fp32 the sums are the same ones, and so are their last digits.
    case(V1, 2, dtype="float32"),
    case(V1, 2, optimizer="adamw"),
]
TILES = [
    case(V1, 2, "1x4", schedule="gpipe"),
    case(ODD, 2, "4x1", batch=5),
    case(ODD, 3, "2x2", "4x1"),
    case(V1, 2, "1x2", "1x2"),
    case(AMOEBANET, 3, "1x2", "2x1"),
]
SHARED = [
    case(V1, 2, members=2),
    case(V1, 3, "2x2", members=2, batch=6),
    case(V1, 1, replicas=3),
    case(V1, 2, members=2, replicas=2),
]
MIRRORED = [
    *(
        case(V1, 2, mirrored=True, times=2, schedule=schedule, batch=5)
        for schedule in ("gpipe", "1f1b")
    ),
    case(V1, 2, "1x2", "1x2", mirrored=True),
    case(ODD, 3, "2x2", "2x1", mirrored=True),
    case(V1, 2, mirrored=True, replicas=2),
    case(V1, 3, mirrored=True, members=2, batch=8),
]
ONE_WAY = [
    case(V1, 4, mirrored=True, one_way=True, schedule="gpipe"),
    case(V1, 3, mirrored=True, one_way=True, optimizer="adam"),
    case(V1, 1, mirrored=True, one_way=True, parts=1),
    case(ODD, 3, "2x2", "2x1", mirrored=True, one_way=True),
    case(V1, 2, "1x2", mirrored=True, one_way=True, replicas=2),
    case(V1, 3, mirrored=True, one_way=True, members=2, batch=8),
]
OTHER_BACKENDS = [
    case(V1, 2, backend="gloo", schedule="gpipe", batch=5, dtype="float32"),
    case(V1, 2, "2x2", backend="gloo"),
    case(V1, 2, mirrored=True, times=2, backend="gloo"),
]
FAULTS = {
    # A fault, and the kinds of tensors that must show it.
    "lost-gradient": (case(V1, 2), {"loss", "input", "gradients", "weights", "logits"}),
    "unsummed": (case(V1, 2, members=2), {"loss", "gradients", "weights", "logits"}),
    "own-statistics": (case(V1, 2, members=2), {"loss", "input", "gradients", "statistics"}),
    "unmirrored": (case(V1, 2, mirrored=True), {"statistics", "logits"}),
    # Nothing arrives at the owner, who learns from its own half; or nothing comes back from it.
    "gradients-not-sent": (
        case(V1, 2, mirrored=True, one_way=True),
        {"loss", "gradients", "weights", "logits"},
    ),
    "weights-not-sent": (
        case(V1, 2, mirrored=True, one_way=True),
        {"loss", "gradients", "weights", "logits"},
    ),
}
WRONG = [words | {"fault": fault} for fault, (words, _) in FAULTS.items()]
RIGHT = [*PIPELINES, *TILES, *SHARED, *MIRRORED, *ONE_WAY, *OTHER_BACKENDS]
CASES = RIGHT + WRONG
SAMPLE = CaseSample(
    CASES, lambda words: (words["model"], words["fault"], words["mirrored"]), stride=12
)


def ranks_of(words):
    grids = [Grid(*parse_pair(grid)) for grid in words["grids"]]
    layout = build_layout(
        words["stages"], grids, members=words["members"], replicas=words["replicas"]
    )
    return layout.ranks


def name_of(words):
    plain = PLAIN | SOLVER
    more = [f"{key}={words[key]}" for key in plain if words[key] != plain[key]]
    return " ".join(
        [
            words["model"],
            f"{words['stages']} stages",
            *words["grids"],
            f"{words['batch']}/{words['parts']}",
            words["schedule"],
            *more,
        ]
    )


@pytest.fixture(scope="module")
def answers(request, tmp_path_factory):
    """What the ranks said of a case."""
    folder = tmp_path_factory.mktemp("parallel")
    cases = SAMPLE.select_requested(request)
    said = run_cases_on_ranks(max(map(ranks_of, cases)), "train_all.py", folder, cases)
    return lambda words: said[cases.index(words)]


@pytest.mark.parametrize("words", SAMPLE.make_params(RIGHT), ids=name_of)
def test_a_model_over_many_ranks_learns_what_it_learns_on_one(answers, words):
    assert_errors_below(answers(words), ranks_of(words), KINDS, CLOSE)


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words["fault"])
def test_ranks_that_do_something_wrong_are_found_out(answers, words):
    assert find_large_errors(answers(words), KINDS, FAR) >= FAULTS[words["fault"]][1]
