"""Training of models over many real ranks, compared with training on one rank.

Two steps of each layout are compared with one process that takes the same micro-batches in the same
order, mostly in float64: the loss, gradients of the images and of all parameters, running
statistics, the weights, and the logits of an evaluation. One launch runs all cases.
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


DEFAULTS = {
    "members": 1,
    "replicas": 1,
    "mirrored": False,
    "times": 1,
    "backend": "mpi",
    "one_way": False,
}
SOLVER = {"dtype": "float64", "optimizer": "sgd"}


def make_case(network, stages, *grids, batch=4, parts=2, schedule="1f1b", fault=None, **fields):
    layout = {"stages": stages, "grids": list(grids), "batch": batch, "parts": parts}
    options = DEFAULTS | SOLVER | fields
    return network | layout | options | {"schedule": schedule, "fault": fault}


PIPELINES = [
    make_case(V1, 3, schedule="gpipe"),
    make_case(V1, 4, parts=4),
    make_case(V1, 2, batch=5),
    # In fp32, the order of the sums is the same, and so are their last digits.
    make_case(V1, 2, dtype="float32"),
    make_case(V1, 2, optimizer="adamw"),
]
TILES = [
    make_case(V1, 2, "1x4", schedule="gpipe"),
    make_case(ODD, 2, "4x1", batch=5),
    make_case(ODD, 3, "2x2", "4x1"),
    make_case(V1, 2, "1x2", "1x2"),
    make_case(AMOEBANET, 3, "1x2", "2x1"),
]
SHARED = [
    make_case(V1, 2, members=2),
    make_case(V1, 3, "2x2", members=2, batch=6),
    make_case(V1, 1, replicas=3),
    make_case(V1, 2, members=2, replicas=2),
]
MIRRORED = [
    *(
        make_case(V1, 2, mirrored=True, times=2, schedule=schedule, batch=5)
        for schedule in ("gpipe", "1f1b")
    ),
    make_case(V1, 2, "1x2", "1x2", mirrored=True),
    make_case(ODD, 3, "2x2", "2x1", mirrored=True),
    make_case(V1, 2, mirrored=True, replicas=2),
    make_case(V1, 3, mirrored=True, members=2, batch=8),
]
ONE_WAY = [
    make_case(V1, 4, mirrored=True, one_way=True, schedule="gpipe"),
    make_case(V1, 3, mirrored=True, one_way=True, optimizer="adam"),
    make_case(V1, 1, mirrored=True, one_way=True, parts=1),
    make_case(ODD, 3, "2x2", "2x1", mirrored=True, one_way=True),
    make_case(V1, 2, "1x2", mirrored=True, one_way=True, replicas=2),
    make_case(V1, 3, mirrored=True, one_way=True, members=2, batch=8),
]
OTHER_BACKENDS = [
    make_case(V1, 2, backend="gloo", schedule="gpipe", batch=5, dtype="float32"),
    make_case(V1, 2, "2x2", backend="gloo"),
    make_case(V1, 2, mirrored=True, times=2, backend="gloo"),
]
FAULTS = {
    # A fault, and the kinds of tensors that it must change.
    "lost-gradient": (make_case(V1, 2), {"loss", "input", "gradients", "weights", "logits"}),
    "unsummed": (make_case(V1, 2, members=2), {"loss", "gradients", "weights", "logits"}),
    "own-statistics": (make_case(V1, 2, members=2), {"loss", "input", "gradients", "statistics"}),
    "unmirrored": (make_case(V1, 2, mirrored=True), {"statistics", "logits"}),
    # The owner gets no gradients and trains with its own half, or it sends no weights back.
    "gradients-not-sent": (
        make_case(V1, 2, mirrored=True, one_way=True),
        {"loss", "gradients", "weights", "logits"},
    ),
    "weights-not-sent": (
        make_case(V1, 2, mirrored=True, one_way=True),
        {"loss", "gradients", "weights", "logits"},
    ),
}
FAULTY = [case | {"fault": fault} for fault, (case, _) in FAULTS.items()]
CORRECT = [*PIPELINES, *TILES, *SHARED, *MIRRORED, *ONE_WAY, *OTHER_BACKENDS]
CASES = CORRECT + FAULTY
SAMPLE = CaseSample(CASES, lambda case: (case["model"], case["fault"], case["mirrored"]), stride=12)


def count_ranks(case):
    grids = [Grid(*parse_pair(grid)) for grid in case["grids"]]
    layout = build_layout(case["stages"], grids, members=case["members"], replicas=case["replicas"])
    return layout.rank_count


def describe_case(case):
    defaults = DEFAULTS | SOLVER
    options = [f"{key}={case[key]}" for key in defaults if case[key] != defaults[key]]
    return " ".join(
        [
            case["model"],
            f"{case['stages']} stages",
            *case["grids"],
            f"{case['batch']}/{case['parts']}",
            case["schedule"],
            *options,
        ]
    )


@pytest.fixture(scope="module")
def find_errors(request, tmp_path_factory):
    """Run the cases once; return a function for the errors of a case by rank."""
    folder = tmp_path_factory.mktemp("parallel")
    cases = SAMPLE.select_requested(request)
    results = run_cases_on_ranks(max(map(count_ranks, cases)), "train_all.py", folder, cases)
    return lambda case: results[cases.index(case)]


@pytest.mark.parametrize("case", SAMPLE.make_params(CORRECT), ids=describe_case)
def test_training_on_many_ranks_equals_training_on_one(find_errors, case):
    assert_errors_below(find_errors(case), count_ranks(case), KINDS, CLOSE)


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case["fault"])
def test_detects_faults_of_ranks(find_errors, case):
    assert find_large_errors(find_errors(case), KINDS, FAR) >= FAULTS[case["fault"]][1]
