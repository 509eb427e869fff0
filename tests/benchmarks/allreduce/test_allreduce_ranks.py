"""Reductions on MPI ranks: references and formulas of algorithms, and the suite."""

from pathlib import Path

import jsonschema
import pytest

from spbench.report.model import report_schema
from spbench_core.catalog import BENCHMARKS
from support.runs import run, run_cases_on_ranks, run_on_ranks
from support.samples import CaseSample

PROGRAM = Path(__file__).with_name("reduce_all.py")

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = "suites/allreduce.yaml"
YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
ENTRY = BENCHMARKS["allreduce.sweep"]


SIZES = [2, 3, 4, 5, 6]
SAMPLE = CaseSample(SIZES, lambda ranks: None)


@pytest.fixture(scope="module")
def problems(request, tmp_path_factory):
    """Return the problems by number of ranks, from one launch."""
    folder = tmp_path_factory.mktemp("reductions")
    sizes = SAMPLE.select_requested(request)
    results = run_cases_on_ranks(max(sizes), PROGRAM, folder, sizes)
    return dict(zip(sizes, results, strict=True))


@pytest.mark.parametrize("ranks", SAMPLE.make_params(SIZES))
def test_every_algorithm_reduces_and_counts_correctly(problems, ranks):
    assert problems[ranks] == [[]] * ranks


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Run the complete suite with few iterations of each case."""
    home = tmp_path_factory.mktemp("allreduce") / "home"
    return run(SUITE, "--set", "iterations=4", "--set", "warmup=1", home=home)


@pytest.mark.long
def test_the_suite_passes_every_check_on_every_rank(sweep):
    assert sweep.code == 0, sweep.stdout + sweep.stderr
    jsonschema.validate(sweep.report, report_schema())
    for case in sweep.report["cases"]:
        checks = {check["name"]: check["ranks_passed"] for check in case["checks"]}
        assert checks == dict.fromkeys(ENTRY.checks, case["np"])
        assert case["metrics"]["wrong"]["value"] == 0
        assert case["metrics"]["time_ms"]["n"] == 4


@pytest.mark.long
def test_a_case_has_one_size_and_algorithm_with_figures(sweep):
    case = sweep.case("two[algorithm=ring,size=4096]")
    assert (case["params"]["algorithm"], case["params"]["size"]) == ("ring", 4096)
    values = {name: metric["value"] for name, metric in case["metrics"].items()}
    assert values["count"] == 1024
    # A ring of two sends each half of the vector once before and once after its addition.
    assert (values["bytes_sent"], values["messages_sent"], values["rounds"]) == (4096, 2, 2)
    assert values["algbw_gb_s"] == pytest.approx(4096e-6 / values["time_ms"], rel=1e-3)
    assert values["busbw_gb_s"] == values["algbw_gb_s"]
    assert values["predicted_ms"] > 0
    assert values["native_ms"] > 0
    assert case["limits"]["time_ms"]["measured_by"].startswith("the model of ring")
    outcomes = ("faster", "slower", "no significant difference")
    assert case["choices"]["against native"]["value"] in outcomes
    assert "95 % interval" in case["choices"]["against native"]["reason"]
    assert case["choices"]["model"]["value"] in ("holds", "deviates")


@pytest.mark.long
def test_native_is_compared_with_the_best_by_the_model(sweep):
    case = sweep.case("two[algorithm=native,size=1048576]")
    assert not {"native_ms", "bytes_sent"} & case["metrics"].keys()
    best = case["choices"]["best by the model"]
    assert best["value"] in ("ring", "bidirectional_ring", "recursive_doubling", "rabenseifner")
    assert "the MPI's own choice takes" in best["reason"]
    short = sweep.case("formats[dtype=bf16,op=sum,algorithm=native]")
    assert short["choices"]["operation"]["value"] == "registered"


@pytest.mark.long
def test_a_wrong_element_fails_every_case(tmp_path):
    options = ("--set", "iterations=2", "--set", "warmup=0", "-k", "others or rotated or hidden")
    completed = run(SUITE, *options, "--inject", "wrong-element", home=tmp_path)
    assert completed.code == 1, completed.stdout + completed.stderr
    assert set(completed.statuses.values()) == {"failed"}
    for case in completed.report["cases"]:
        failed = {check["name"]: check["ranks_failed"] for check in case["checks"]}
        assert failed["exact"] == failed["bound"] == 1
        assert case["metrics"]["wrong"]["value"] >= 4


def run_standalone(ranks, *arguments):
    benchmark = ("-m", "spbench_workers", "allreduce.sweep", "--iterations", "2")
    return run_on_ranks(ranks, *benchmark, *arguments, **YIELDING)


def test_a_standalone_run_prints_one_table():
    arguments = (
        "--algorithm",
        "native,ring",
        "--min-bytes",
        "8",
        "--max-bytes",
        "64",
        "--factor",
        "8",
    )
    completed = run_standalone(2, *arguments)
    assert completed.returncode == 0, completed.stderr
    head, _time, names, units, *rows, wrong, average = completed.stdout.splitlines()
    assert head == "# allreduce, blocking, out of place, 2 ranks"
    columns = ["size", "count", "type", "redop", "algorithm", "time", "algbw", "busbw", "#wrong"]
    assert names.split()[1:10] == columns
    assert units.split()[1:3] == ["(B)", "(elements)"]
    assert [(row.split()[0], row.split()[4]) for row in rows] == [
        (size, algorithm) for algorithm in ("native", "ring") for size in ("8", "64")
    ]
    assert wrong == "# Wrong elements       : 0 OK"
    busbw = [float(row.split()[7]) for row in rows]
    assert float(average.split()[-2]) == pytest.approx(sum(busbw) / 4, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("--size 8 --inject wrong-element", 1, "Validation failed Rank:1 exact"),
        ("--algorithm muji_4", 2, "runs on 4 ranks, not on 2"),
    ],
)
def test_errors_determine_the_exit_status(arguments, code, expected):
    completed = run_standalone(2, *arguments.split())
    assert completed.returncode == code
    assert expected in completed.stdout + completed.stderr
