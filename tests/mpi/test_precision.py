"""Number formats over many real ranks.

Models train and infer in each format, in stages and over tiles. The results are compared with those
of one rank in the same format, and with float64. One launch runs all cases.

In the same format, all errors are as large as one rounding error, because only the order of sums
differs. Compared with float64, the errors of gradients are as large as the root of a rounding
error: that share of the values before a ReLU changes its sign, and each of them passes or blocks a
complete gradient.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

EPSILON = {"fp32": 2.0**-20, "fp16": 2.0**-10, "bf16": 2.0**-7}
"""The distance from 1 to the next number; eight times that for fp32, because its sums round too."""
KINDS = {"loss", "input", "gradients", "statistics", "weights", "logits"}
THROUGH_RELU = {"input", "gradients"}
INT8_AGREES = 1e-4
INT8_ERROR = 0.01

CASE = {
    "model": "resnet",
    "image": [32, 32],
    "config": {"version": 1, "depth": 8, "width": 4},
    "stages": 1,
    "grids": [],
    "mirrored": False,
    "trains": True,
    "overflows": False,
    "fault": None,
}
ONE_RANK = {}
PIPELINE = {"stages": 2}
TILES = {"stages": 2, "grids": ["2x2"]}
MIRRORED = {"stages": 2, "mirrored": True}


def make_case(precision, layout, **fields):
    return CASE | {"precision": precision} | layout | fields


TRAINING = [
    *(
        make_case(precision, layout)
        for precision in ("fp16", "bf16")
        for layout in (ONE_RANK, PIPELINE)
    ),
    *(make_case(precision, TILES) for precision in ("fp32", "fp16", "bf16")),
]
INFERENCE = [make_case("bf16", TILES, trains=False)]
WHOLE_NUMBERS = [make_case("int8", layout, trains=False) for layout in (PIPELINE, TILES, MIRRORED)]
OVERFLOW = make_case("fp16", TILES, overflows=True)
LOST = make_case("bf16", TILES, fault="lost-gradient")
OWN_RANGES = make_case("int8", TILES, trains=False, fault="own-ranges")
OWN_DECISION = make_case("fp16", PIPELINE, overflows=True, fault="own-decision")
CASES = [*TRAINING, *INFERENCE, *WHOLE_NUMBERS, OVERFLOW, LOST, OWN_RANGES, OWN_DECISION]


def describe_case(case):
    work = "trains" if case["trains"] else "infers"
    mirrored = " mirrored" if case["mirrored"] else ""
    return f"{case['precision']} {work} {case['stages']} {' '.join(case['grids'])}{mirrored}"


@pytest.fixture(scope="module")
def find_results(tmp_path_factory):
    results = run_cases_on_ranks(
        5, "compute_in_formats.py", tmp_path_factory.mktemp("formats"), CASES
    )
    return lambda case: results[CASES.index(case)]


def get_tolerance(case, kind, reference):
    epsilon = EPSILON[case["precision"]]
    if reference == "exact" and kind in THROUGH_RELU:
        return 3 * epsilon**0.5
    return (4 if reference == "exact" else 2) * epsilon


def find_large_errors(case, results, reference):
    """Return the kinds of tensors with an error above the tolerance on some rank."""
    return {
        kind
        for rank in results
        for kind, error in rank[reference].items()
        if not error < get_tolerance(case, kind, reference)
    }


@pytest.mark.parametrize("case", TRAINING + INFERENCE, ids=describe_case)
def test_ranks_compute_like_one_rank_in_each_format(find_results, case):
    results = find_results(case)
    kinds = {kind for rank in results for kind in rank["exact"]}
    assert kinds == (KINDS if case["trains"] else {"logits"})
    assert find_large_errors(case, results, "in_format") == set(), results
    assert find_large_errors(case, results, "exact") == set(), results
    assert all(rank["skipped"] == 0 for rank in results)


def test_detects_a_lost_gradient(find_results):
    results = find_results(LOST)
    assert find_large_errors(LOST, results, "in_format") >= {"loss", "input", "gradients", "logits"}
    assert find_large_errors(LOST, results, "exact") >= {"input", "gradients", "logits"}


def test_messages_of_16_bits_have_half_as_many_bytes(find_results):
    full, *halves = (
        [rank["bytes"] for rank in find_results(make_case(precision, TILES))]
        for precision in ("fp32", "fp16", "bf16")
    )
    assert min(full) > 0
    for half in halves:
        assert [2 * byte_count for byte_count in half] == full


@pytest.mark.parametrize("case", WHOLE_NUMBERS, ids=describe_case)
def test_ranks_infer_like_one_rank_in_int8(find_results, case):
    results = find_results(case)
    (logits, *_) = (rank for rank in results if "logits" in rank["exact"])
    for rank in results:
        assert rank["share"] == pytest.approx(logits["share"])
        assert rank["in_format"].get("logits", 0.0) < INT8_AGREES
        # A smaller error would mean fp32, without any rounding.
        assert 1e-5 < rank["exact"].get("logits", 1e-3) < INT8_ERROR
    assert 0.99 < logits["share"] < 1.0


def test_detects_tiles_with_different_scales(find_results):
    errors = [rank["in_format"].get("logits", 0.0) for rank in find_results(OWN_RANGES)]
    assert max(errors) > INT8_AGREES


def test_all_ranks_skip_a_step_that_overflows_on_one_rank(find_results):
    for rank in find_results(OVERFLOW):
        assert rank == {
            "halved": True,
            "skipped": 1,
            "kept": True,
            "trained": True,
            "skipped_after": 1,
        }


def test_detects_ranks_that_decide_independently(find_results):
    first, last = find_results(OWN_DECISION)
    assert not first["kept"]
    assert last["kept"]
