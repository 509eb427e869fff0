"""The key ``scale:`` of a case entry."""

from pathlib import Path

import pytest

from spbench.errors import SuiteError
from spbench.suites.loader import load_suite_text

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"
GEMM = "{name: gemm, benchmark: compute.gemm, scale: {np: [1, 2, 4], work: weak}}"


def cases_of(*entries, overrides=()):
    text = HEAD + "".join(f"  - {entry}\n" for entry in entries)
    return load_suite_text(text, Path("s.yaml"), overrides).cases


def told_of(*entries, overrides=()):
    with pytest.raises(SuiteError) as caught:
        cases_of(*entries, overrides=overrides)
    return [f"{one.line}: {one.message}" for one in caught.value.diagnostics]


def test_a_case_is_made_for_each_number_of_ranks():
    cases = cases_of(GEMM)
    assert [(case.id, case.np) for case in cases] == [
        ("gemm[np=1]", 1),
        ("gemm[np=2]", 2),
        ("gemm[np=4]", 4),
    ]
    assert {(one.scaled.of, one.scaled.work, one.scaled.throughput) for one in cases} == {
        ("gemm", "weak", None)
    }


def test_other_swept_parameters_tell_the_cases_apart():
    entry = GEMM.replace("scale:", "matrix: {n: [64, 128]}, scale:")
    assert [case.id for case in cases_of(entry)] == [
        f"gemm[n={n},np={np}]" for n in (64, 128) for np in (1, 2, 4)
    ]
    assert {case.scaled.of for case in cases_of(entry)} == {"gemm[n=64]", "gemm[n=128]"}


def test_a_benchmark_that_sweeps_by_itself_does_so_on_each_number_of_ranks():
    sweep = "params: {max_bytes: 32}, scale: {np: [2, 4], work: weak}"
    cases = cases_of(f"{{name: a, benchmark: allreduce.sweep, {sweep}}}")
    assert {case.scaled.of for case in cases} == {"a[size=8]", "a[size=32]"}
    assert [case.np for case in cases] == [2, 2, 4, 4]


def test_the_whole_work_of_a_model_is_told_by_its_throughput():
    params = "params: {depth: 20, parts: 2}, scale: {np: [1, 2], work: strong}"
    one, two = cases_of(f"{{name: m, benchmark: model.resnet, {params}}}")
    assert (one.params["scheme"], two.params["scheme"]) == ("sequential", "lp")
    assert two.scaled.throughput == "images_per_second"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (GEMM.replace("[1, 2, 4]", "[2, 1]"), "4: np of scale must rise"),
        (GEMM.replace("[1, 2, 4]", "[1, 1]"), "4: np of scale must rise"),
        (GEMM.replace("scale:", "matrix: {np: [1, 2]}, scale:"), "4: np is swept, and scale has"),
        (GEMM.replace("weak", "strong"), "4: gemm: scale: each rank has work of its own"),
        (
            GEMM.replace("compute.gemm", "link.pingpong"),
            "4: gemm: link.pingpong does not go over to other numbers of ranks",
        ),
        (
            GEMM.replace("compute.gemm", "halo.compute").replace("[1, 2, 4]", "[2, 4]"),
            "4: gemm: scale: slice_method square: 2 tiles make no square",
        ),
        (
            GEMM.replace("compute.gemm", "link.ring"),
            "4: np is 1, but link.ring with these parameters needs at least 2",
        ),
        (
            "{name: m, benchmark: model.resnet, scale: {np: [2, 60], work: strong}}",
            "4: m: on 60 ranks: split_size: ",
        ),
    ],
)
def test_a_case_that_cannot_go_over_is_told_with_its_line(entry, told):
    assert [one[: len(told)] for one in told_of(entry)][:1] == [told]


def test_an_override_gives_all_cases_ranks_or_one():
    other = "{name: other, benchmark: memory.copy, np: 3}"
    every = ['scale={"np": [2, 3], "work": "weak"}']
    assert [case.np for case in cases_of(GEMM, other, overrides=every)] == [2, 3, 2, 3]
    one = ['scale.other={"np": [2, 5], "work": "weak"}']
    assert [case.np for case in cases_of(GEMM, other, overrides=one)] == [1, 2, 4, 2, 5]


def test_an_override_takes_the_place_of_swept_ranks():
    entry = "{name: a, benchmark: memory.copy, matrix: {np: [1, 2]}}"
    given = ['scale={"np": [2, 3], "work": "weak"}']
    assert [case.np for case in cases_of(entry, overrides=given)] == [2, 3]


def test_an_override_of_no_case_is_told():
    with pytest.raises(Exception, match=r"no suite key or parameter is called 'scale\.nobody'"):
        cases_of(GEMM, overrides=['scale.nobody={"np": [1, 2], "work": "weak"}'])
