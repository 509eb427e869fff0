"""Number formats over many real ranks.

Models learn and infer in each format, in stages and over tiles, and are held against one rank in
the same format, and against float64. One launch does all.

In the same format all errors are of the size of one rounding: but for the order of sums, ranks do
what one rank does. Against float64 the gradients are farther off than that, by the root of a
rounding: as many of the values before a ReLU as a rounding is large change their sign, and each
lets a whole gradient through, or holds it back.
"""

import pytest

from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

EPSILON = {"fp32": 2.0**-20, "fp16": 2.0**-10, "bf16": 2.0**-7}
"""The distance from 1 to the next number; of fp32 eight times that, since its sums round too."""
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
    "learns": True,
    "overflows": False,
    "fault": None,
}
ONE = {}
PIPELINE = {"stages": 2}
TILES = {"stages": 2, "grids": ["2x2"]}
MIRRORED = {"stages": 2, "mirrored": True}


def case(precision, layout, **more):
    return CASE | {"precision": precision} | layout | more


LEARNING = [
    *(case(precision, layout) for precision in ("fp16", "bf16") for layout in (ONE, PIPELINE)),
    *(case(precision, TILES) for precision in ("fp32", "fp16", "bf16")),
]
INFERRING = [case("bf16", TILES, learns=False)]
WHOLE_NUMBERS = [case("int8", layout, learns=False) for layout in (PIPELINE, TILES, MIRRORED)]
OVERFLOW = case("fp16", TILES, overflows=True)
LOST = case("bf16", TILES, fault="lost-gradient")
OWN_RANGES = case("int8", TILES, learns=False, fault="own-ranges")
ALONE = case("fp16", PIPELINE, overflows=True, fault="alone")
CASES = [*LEARNING, *INFERRING, *WHOLE_NUMBERS, OVERFLOW, LOST, OWN_RANGES, ALONE]


def name_of(words):
    work = "learns" if words["learns"] else "infers"
    mirrored = " mirrored" if words["mirrored"] else ""
    return f"{words['precision']} {work} {words['stages']} {' '.join(words['grids'])}{mirrored}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    found = run_cases_on_ranks(
        5, "compute_in_formats.py", tmp_path_factory.mktemp("formats"), CASES
    )
    return lambda words: found[CASES.index(words)]


def tolerance(words, kind, against):
    epsilon = EPSILON[words["precision"]]
    if against == "exact" and kind in THROUGH_RELU:
        return 3 * epsilon**0.5
    return (4 if against == "exact" else 2) * epsilon


def wrong(words, found, against):
    """The kinds of tensors that are too far off on some rank."""
    return {
        kind
        for rank in found
        for kind, error in rank[against].items()
        if not error < tolerance(words, kind, against)
    }


@pytest.mark.parametrize("words", LEARNING + INFERRING, ids=name_of)
def test_ranks_compute_in_a_format_what_one_rank_does(answers, words):
    found = answers(words)
    kinds = {kind for rank in found for kind in rank["exact"]}
    assert kinds == (KINDS if words["learns"] else {"logits"})
    assert wrong(words, found, "in_format") == set(), found
    assert wrong(words, found, "exact") == set(), found
    assert all(rank["skipped"] == 0 for rank in found)


def test_a_lost_gradient_is_more_than_rounding(answers):
    found = answers(LOST)
    assert wrong(LOST, found, "in_format") >= {"loss", "input", "gradients", "logits"}
    assert wrong(LOST, found, "exact") >= {"input", "gradients", "logits"}


def test_messages_of_16_bits_are_half_as_many_bytes(answers):
    full, *halves = (
        [rank["bytes"] for rank in answers(case(precision, TILES))]
        for precision in ("fp32", "fp16", "bf16")
    )
    assert min(full) > 0
    for half in halves:
        assert [2 * sent for sent in half] == full


@pytest.mark.parametrize("words", WHOLE_NUMBERS, ids=name_of)
def test_ranks_infer_in_whole_numbers_what_one_rank_does(answers, words):
    found = answers(words)
    (logits, *_) = (rank for rank in found if "logits" in rank["exact"])
    for rank in found:
        assert rank["share"] == pytest.approx(logits["share"])
        assert rank["in_format"].get("logits", 0.0) < INT8_AGREES
        # Below it would be fp32: nothing was rounded.
        assert 1e-5 < rank["exact"].get("logits", 1e-3) < INT8_ERROR
    assert 0.99 < logits["share"] < 1.0


def test_tiles_that_do_not_agree_on_a_scale_are_found_out(answers):
    errors = [rank["in_format"].get("logits", 0.0) for rank in answers(OWN_RANGES)]
    assert max(errors) > INT8_AGREES


def test_all_ranks_skip_a_step_of_which_one_has_no_gradients(answers):
    for rank in answers(OVERFLOW):
        assert rank == {
            "halved": True,
            "skipped": 1,
            "kept": True,
            "learnt": True,
            "skipped_after": 1,
        }


def test_ranks_that_decide_alone_are_found_out(answers):
    first, last = answers(ALONE)
    assert not first["kept"]
    assert last["kept"]
