"""Networks over tiles on real ranks, compared with whole images.

Logits, gradients of the image and of all parameters, running statistics and an evaluation are
compared with those of torch's modules in float64. One launch runs all cases.
"""

import pytest

from support.model_errors import assert_errors_below
from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

CLOSE = 1e-10
FAR = 1e-3
KINDS = {"output", "input", "gradients", "statistics", "evaluation"}


def make_network(model, *image, **config):
    return {"model": model, "image": list(image), "config": config, "fault": None}


V1 = make_network("resnet", 40, 70, version=1, depth=8)
V2 = make_network("resnet", 62, 62, version=2, depth=11, width=8)
RESNET50 = make_network("resnet", 45, 64, arch="resnet50", width=4)
AMOEBANET = make_network("amoebanet", 64, 64, num_layers=3, num_filters=8)
SHIFTED = make_network("amoebanet", 64, 64, num_layers=3, num_filters=8, shift=True)
MAXIMA = make_network("amoebanet", 64, 64, num_layers=6, num_filters=8, pool3="max")
PUBLISHED = make_network("amoebanet", 64, 96, num_layers=3, num_filters=12, pool3="max", shift=True)
# V1 and V2 pool 1x2 and 2x2 pixels before the classifier, of which some ranks have none.
TILED_NETWORKS = {
    4: [
        *(
            (network, "2x2")
            for network in (V1, V2, RESNET50, AMOEBANET, SHIFTED, MAXIMA, PUBLISHED)
        ),
        *((network, "1x4") for network in (V1, RESNET50, PUBLISHED)),
        *((network, "4x1") for network in (V2, AMOEBANET)),
    ],
    6: [*((network, "2x3") for network in (V1, V2, RESNET50, PUBLISHED)), (SHIFTED, "6x1")],
}
CORRECT = {
    ranks: [network | {"grid": grid} for network, grid in networks]
    for ranks, networks in TILED_NETWORKS.items()
}
FAULTS = {
    # A fault, and the kinds of tensors that it must change.
    "tile-batchnorm": {"output", "input", "gradients", "statistics"},
    "no-halo": {"output", "input", "gradients", "evaluation"},
    "own-gradients": {"gradients"},
}
FAULTY = [V1 | {"grid": "2x2", "fault": fault} for fault in FAULTS]
CASES = [*CORRECT[4], *CORRECT[6], *FAULTY]
SAMPLE = CaseSample(CASES, lambda case: (case["model"], case["fault"]), stride=8)


def describe_case(case):
    config = (f"{key}={value}" for key, value in case["config"].items())
    height, width = case["image"]
    return " ".join([case["model"], *config, f"{height}x{width}", "over", case["grid"]])


@pytest.fixture(scope="module")
def find_errors(request, tmp_path_factory):
    """Run the cases once; return a function for the errors of a case by rank."""
    folder = tmp_path_factory.mktemp("models")
    cases = SAMPLE.select_requested(request)
    results = run_cases_on_ranks(6, "run_models.py", folder, cases)
    return lambda case: results[cases.index(case)]


@pytest.mark.parametrize("case", SAMPLE.make_params([*CORRECT[4], *CORRECT[6]]), ids=describe_case)
def test_network_over_tiles_equals_the_whole_image(find_errors, case):
    ranks = next(ranks for ranks in CORRECT if case in CORRECT[ranks])
    assert_errors_below(find_errors(case), ranks, KINDS, CLOSE)


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case["fault"])
def test_detects_faults_over_tiles(find_errors, case):
    for errors in find_errors(case):
        assert errors.keys() == KINDS, errors
        assert {kind for kind, error in errors.items() if error > FAR} >= FAULTS[case["fault"]]
