"""Networks over tiles on real ranks are the networks on the whole image.

Logits, gradients of the image and of all parameters, running statistics and an evaluation are held
against those of torch's own modules in float64. One launch does all.
"""

import pytest

from support.model_errors import assert_errors_below
from support.runs import run_cases_on_ranks
from support.samples import CaseSample

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

CLOSE = 1e-10
FAR = 1e-3
KINDS = {"output", "input", "gradients", "statistics", "evaluation"}


def network(model, *image, **config):
    return {"model": model, "image": list(image), "config": config, "fault": None}


V1 = network("resnet", 40, 70, version=1, depth=8)
V2 = network("resnet", 62, 62, version=2, depth=11, width=8)
RESNET50 = network("resnet", 45, 64, arch="resnet50", width=4)
AMOEBANET = network("amoebanet", 64, 64, num_layers=3, num_filters=8)
SHIFTED = network("amoebanet", 64, 64, num_layers=3, num_filters=8, shift=True)
MAXIMA = network("amoebanet", 64, 64, num_layers=6, num_filters=8, pool3="max")
PUBLISHED = network("amoebanet", 64, 96, num_layers=3, num_filters=12, pool3="max", shift=True)
# What V1 and V2 pool before the classifier is 1x2 and 2x2 pixels: some ranks have none of them.
PLACES = {
    4: [
        *((one, "2x2") for one in (V1, V2, RESNET50, AMOEBANET, SHIFTED, MAXIMA, PUBLISHED)),
        *((one, "1x4") for one in (V1, RESNET50, PUBLISHED)),
        *((one, "4x1") for one in (V2, AMOEBANET)),
    ],
    6: [*((one, "2x3") for one in (V1, V2, RESNET50, PUBLISHED)), (SHIFTED, "6x1")],
}
RIGHT = {
    ranks: [one | {"grid": grid} for one, grid in networks] for ranks, networks in PLACES.items()
}
FAULTS = {
    # A fault, and the kinds of tensors that must show it.
    "tile-batchnorm": {"output", "input", "gradients", "statistics"},
    "no-halo": {"output", "input", "gradients", "evaluation"},
    "own-gradients": {"gradients"},
}
WRONG = [V1 | {"grid": "2x2", "fault": fault} for fault in FAULTS]
CASES = [*RIGHT[4], *RIGHT[6], *WRONG]
SAMPLE = CaseSample(CASES, lambda case: (case["model"], case["fault"]), stride=8)


def name_of(case):
    config = (f"{key}={value}" for key, value in case["config"].items())
    height, width = case["image"]
    return " ".join([case["model"], *config, f"{height}x{width}", "over", case["grid"]])


@pytest.fixture(scope="module")
def answers(request, tmp_path_factory):
    """Starts MPI and torch once; returns what the ranks said of a case."""
    folder = tmp_path_factory.mktemp("models")
    cases = SAMPLE.select_requested(request)
    said = run_cases_on_ranks(6, "run_models.py", folder, cases)
    return lambda case: said[cases.index(case)]


@pytest.mark.parametrize("case", SAMPLE.make_params([*RIGHT[4], *RIGHT[6]]), ids=name_of)
def test_a_network_over_tiles_is_the_network_on_the_whole_image(answers, case):
    ranks = next(ranks for ranks in RIGHT if case in RIGHT[ranks])
    assert_errors_below(answers(case), ranks, KINDS, CLOSE)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case["fault"])
def test_a_network_that_does_something_wrong_over_tiles_is_found_out(answers, case):
    for errors in answers(case):
        assert errors.keys() == KINDS, errors
        assert {kind for kind, error in errors.items() if error > FAR} >= FAULTS[case["fault"]]
