"""The key ``scale:`` of a case entry."""

from pathlib import Path

import pytest

from spbench.errors import SuiteError
from spbench.suites.loader import load_suite_text

HEAD = "schema: spbench.suite/1\nname: s\ncases:\n"
GEMM = "{name: gemm, benchmark: compute.gemm, scale: {np: [1, 2, 4], work: weak}}"


def load_cases(*entries, overrides=()):
    text = HEAD + "".join(f"  - {entry}\n" for entry in entries)
    return load_suite_text(text, Path("s.yaml"), overrides).cases


def load_errors(*entries, overrides=()):
    with pytest.raises(SuiteError) as caught:
        load_cases(*entries, overrides=overrides)
    return [f"{error.line}: {error.message}" for error in caught.value.diagnostics]


def test_makes_a_case_for_each_number_of_ranks():
    cases = load_cases(GEMM)
    assert [(case.id, case.np) for case in cases] == [
        ("gemm[np=1]", 1),
        ("gemm[np=2]", 2),
        ("gemm[np=4]", 4),
    ]
    assert {
        (case.scaling_series.case_id, case.scaling_series.work, case.scaling_series.throughput)
        for case in cases
    } == {("gemm", "weak", None)}


def test_other_swept_parameters_distinguish_the_cases():
    entry = GEMM.replace("scale:", "matrix: {n: [64, 128]}, scale:")
    assert [case.id for case in load_cases(entry)] == [
        f"gemm[n={n},np={np}]" for n in (64, 128) for np in (1, 2, 4)
    ]
    assert {case.scaling_series.case_id for case in load_cases(entry)} == {
        "gemm[n=64]",
        "gemm[n=128]",
    }


def test_benchmark_sweep_is_repeated_on_each_number_of_ranks():
    sweep = "params: {max_bytes: 32}, scale: {np: [2, 4], work: weak}"
    cases = load_cases(f"{{name: a, benchmark: allreduce.sweep, {sweep}}}")
    assert {case.scaling_series.case_id for case in cases} == {"a[size=8]", "a[size=32]"}
    assert [case.np for case in cases] == [2, 2, 4, 4]


def test_strong_scaling_of_a_model_uses_its_throughput():
    params = "params: {depth: 20, parts: 2}, scale: {np: [1, 2], work: strong}"
    sequential, parallel = load_cases(f"{{name: m, benchmark: model.resnet, {params}}}")
    assert (sequential.params["scheme"], parallel.params["scheme"]) == ("sequential", "lp")
    assert parallel.scaling_series.throughput == "images_per_second"


@pytest.mark.parametrize(
    ("entry", "message"),
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
            "4: np is 1, but link.ring needs at least 2 ranks",
        ),
        (
            "{name: m, benchmark: model.resnet, scale: {np: [2, 60], work: strong}}",
            "4: m: on 60 ranks: split_size: ",
        ),
    ],
)
def test_rejects_invalid_scale_at_its_line(entry, message):
    assert [error[: len(message)] for error in load_errors(entry)][:1] == [message]


def test_override_scales_all_cases_or_one():
    other = "{name: other, benchmark: memory.copy, np: 3}"
    all_cases = ['scale={"np": [2, 3], "work": "weak"}']
    assert [case.np for case in load_cases(GEMM, other, overrides=all_cases)] == [2, 3, 2, 3]
    one_case = ['scale.other={"np": [2, 5], "work": "weak"}']
    assert [case.np for case in load_cases(GEMM, other, overrides=one_case)] == [1, 2, 4, 2, 5]


def test_override_replaces_swept_ranks():
    entry = "{name: a, benchmark: memory.copy, matrix: {np: [1, 2]}}"
    overrides = ['scale={"np": [2, 3], "work": "weak"}']
    assert [case.np for case in load_cases(entry, overrides=overrides)] == [2, 3]


def test_rejects_override_of_an_unknown_case(messages):
    with messages.raises(Exception):
        load_cases(GEMM, overrides=['scale.nobody={"np": [1, 2], "work": "weak"}'])
