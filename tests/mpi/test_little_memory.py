"""A network of which no rank can hold a step is measured and checked all the same."""

import json

import pytest

from support.paths import PROGRAMS
from support.runs import run_cases_on_ranks, run_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(300)]

SHORT = {"iterations": 1, "warmup": 0, "batch_size": 4}
RESNET = {"version": 1, "depth": 20, "image_size": 352, "num_classes": 5}
EXAMPLE = "spbench_parallel.models.imported.example:UNet"
UNET = {"network": EXAMPLE, "network_args": {"segments": True}, "image_size": 448}
NETWORKS = {"model.resnet": (RESNET, 670), "model.network": (UNET, 1000)}
"""Networks, and the megabytes that a rank may take after all imports.

As measured with torch 2.13 on a CPU with AVX2, one process needs at least 1.4 times as much, and a
rank of four at most 0.7 times: what a CPU takes for buffers differs.
"""
TILES = {"scheme": "sp", "split_size": 1}
ALONE = {"scheme": "sequential", "validate": "off"}


def limited(name, layout, room=1):
    params, megabytes = NETWORKS[name]
    return {
        "benchmark": name,
        "params": params | SHORT | layout,
        "megabytes": room * megabytes,
    }


@pytest.fixture(scope="module", params=NETWORKS)
def said(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited")
    return run_cases_on_ranks(
        4, "limit_memory.py", folder, limited(request.param, TILES), seconds=280
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_one_process_has_no_room_for_it(tmp_path, name):
    case = tmp_path / "case.json"
    results = tmp_path / "results.json"
    case.write_text(json.dumps(limited(name, ALONE)))
    ended = run_on_ranks(1, str(PROGRAMS / "limit_memory.py"), str(case), str(results), seconds=280)
    assert not results.exists()
    # oneDNN has two words for it, and at some places none.
    said = ("memory", "could not create a primitive", "Segmentation fault", "bad_alloc")
    assert any(word in ended.stdout + ended.stderr for word in said)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_process_with_room_ends_well(tmp_path, name):
    case = limited(name, ALONE, room=4)
    (events,) = run_cases_on_ranks(1, "limit_memory.py", tmp_path, case, seconds=280)
    assert "time_ms" in {one["metric"] for one in events if one["event"] == "samples"}


def test_ranks_that_share_it_measure_it_and_pass_every_check(said):
    for events in said:
        checks = {one["name"]: one["passed"] for one in events if one["event"] == "check"}
        assert {"output", "input_grad", "grad", "operators", "sums"} <= checks.keys()
        assert all(checks.values()), checks
        assert "time_ms" in {one["metric"] for one in events if one["event"] == "samples"}


def test_the_baseline_says_why_it_is_not_measured(said):
    first, *_ = said
    choices = {one["name"]: one for one in first if one["event"] == "choice"}
    assert choices["baseline"]["value"] == "not measured"
    assert choices["baseline"]["reason"].startswith("the ranks together used ")
    assert choices["full_size"]["reason"].startswith("all ")
