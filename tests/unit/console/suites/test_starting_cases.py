"""The case that a form starts with: valid and small for each benchmark."""

import pytest

from spbench.engine.estimate import (
    RANK_SECONDS,
    START_SECONDS,
    TORCH_SECONDS,
    estimate_work_seconds,
)
from spbench.suites.edit.compose import insert_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.loader import check_text
from spbench_core.catalog import BENCHMARKS

CORES = 2
MAX_SECONDS = 10.0
WITHOUT_ESTIMATE = {"model.network", "program.run"}
"""Benchmarks with work that depends on the user's code."""


def load_cases(name, params, folder):
    text = insert_case("", CaseDraft("case", name, params=params)).text
    checked_text = check_text(text, folder / "suite.yaml")
    assert checked_text.diagnostics == ()
    return checked_text.suite.cases


def estimate_cases(cases):
    """Return the seconds of the cases with the start of their launch; None if unknown."""
    np = cases[0].np or CORES
    works = [case.estimate_work(np) for case in cases]
    if None in works:
        return None
    rank_seconds = TORCH_SECONDS if cases[0].imports_torch else RANK_SECONDS
    start_seconds = START_SECONDS + max(1, np / CORES) * rank_seconds
    return start_seconds + sum(estimate_work_seconds(work, np, CORES) for work in works)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_starting_case_takes_seconds_on_two_cores(name, tmp_path):
    benchmark = BENCHMARKS[name]
    seconds = estimate_cases(load_cases(name, benchmark.starting_params, tmp_path))
    assert (seconds is None) == (name in WITHOUT_ESTIMATE)
    assert seconds is None or seconds < MAX_SECONDS


@pytest.mark.parametrize(
    "name", [name for name, benchmark in BENCHMARKS.items() if benchmark.starter]
)
def test_starter_is_only_for_benchmarks_with_slow_defaults(name, tmp_path):
    benchmark = BENCHMARKS[name]
    default_seconds = estimate_cases(load_cases(name, benchmark.begins_with, tmp_path))
    assert default_seconds is None or default_seconds > MAX_SECONDS
    assert not set(benchmark.starter) & set(benchmark.begins_with)


def test_starting_params_do_not_change_the_defaults():
    benchmark = BENCHMARKS["model.resnet"]
    assert benchmark.starting_params["batch_size"] == 4
    assert benchmark.complete({})["batch_size"] == 32
