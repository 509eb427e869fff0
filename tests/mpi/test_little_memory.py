"""A network of which no rank can hold a step is measured and checked all the same."""

import pytest

from running import answers_of

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

NETWORK = {"version": 1, "depth": 20, "image_size": 384, "num_classes": 5, "batch_size": 1}
SHORT = {"iterations": 1, "warmup": 0}
TILES = NETWORK | SHORT | {"scheme": "sp", "split_size": 1}
ALONE = NETWORK | SHORT | {"scheme": "sequential", "validate": "off"}
MEGABYTES = 330
"""Beyond what a rank has once all is imported."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited")
    case = {"benchmark": "model.resnet", "params": TILES, "alone": ALONE, "megabytes": MEGABYTES}
    return answers_of(4, "limit_memory.py", folder, case, seconds=280)


def test_one_process_has_no_room_for_it(said):
    _, ended = said
    assert "memory" in ended or "could not create a primitive" in ended  # as oneDNN says it


def test_ranks_that_share_it_measure_it_and_pass_every_check(said):
    ranks, _ = said
    for events in ranks:
        checks = {one["name"]: one["passed"] for one in events if one["event"] == "check"}
        assert {"output", "input_grad", "grad", "operators", "sums"} <= checks.keys()
        assert all(checks.values()), checks
        assert "time_ms" in {one["metric"] for one in events if one["event"] == "samples"}


def test_the_baseline_says_why_it_is_not_measured(said):
    (first, *_), _ = said
    choices = {one["name"]: one for one in first if one["event"] == "choice"}
    assert choices["baseline"]["value"] == "not measured"
    assert choices["baseline"]["reason"].startswith("the ranks together used ")
    assert choices["full_size"]["reason"].startswith("all ")
