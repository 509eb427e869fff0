"""Reductions on real ranks: algorithms against references and formulas, and the suite."""

from pathlib import Path

import jsonschema
import pytest

from running import answers_of, on_ranks, run
from sampling import Sample
from spbench.report.model import report_schema
from spbench_core.catalog import BENCHMARKS

PROGRAM = Path(__file__).with_name("reduce_all.py")

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

SUITE = "suites/allreduce.yaml"
YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
ENTRY = BENCHMARKS["allreduce.sweep"]


SIZES = [2, 3, 4, 5, 6]
SAMPLE = Sample(SIZES, lambda ranks: None)


@pytest.fixture(scope="module")
def problems(request, tmp_path_factory):
    """By number of ranks, what went wrong among them; one launch does all."""
    folder = tmp_path_factory.mktemp("reductions")
    sizes = SAMPLE.asked(request)
    said = answers_of(max(sizes), PROGRAM, folder, sizes)
    return dict(zip(sizes, said, strict=True))


@pytest.mark.parametrize("ranks", SAMPLE.of(SIZES))
def test_every_algorithm_reduces_and_counts_right(problems, ranks):
    assert problems[ranks] == [[]] * ranks


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The whole suite, each case in a few iterations."""
    home = tmp_path_factory.mktemp("allreduce") / "home"
    return run(SUITE, "--set", "iterations=4", "--set", "warmup=1", home=home)


@pytest.mark.long
def test_the_suite_passes_with_every_check_on_every_rank(sweep):
    assert sweep.code == 0, sweep.stdout + sweep.stderr
    jsonschema.validate(sweep.report, report_schema())
    for case in sweep.report["cases"]:
        checks = {check["name"]: check["ranks_passed"] for check in case["checks"]}
        assert checks == dict.fromkeys(ENTRY.checks, case["np"])
        assert case["metrics"]["wrong"]["value"] == 0
        assert case["metrics"]["time_ms"]["n"] == 4


@pytest.mark.long
def test_each_case_is_one_size_and_one_algorithm_with_its_figures(sweep):
    case = sweep.case("two[algorithm=ring,size=4096]")
    assert (case["params"]["algorithm"], case["params"]["size"]) == ("ring", 4096)
    values = {name: metric["value"] for name, metric in case["metrics"].items()}
    assert values["count"] == 1024
    # A ring of two: each half of the vector once to be summed, and once as the sum.
    assert (values["bytes_sent"], values["messages_sent"], values["rounds"]) == (4096, 2, 2)
    assert values["algbw_gb_s"] == pytest.approx(4096e-6 / values["time_ms"], rel=1e-3)
    assert values["busbw_gb_s"] == values["algbw_gb_s"]
    assert values["predicted_ms"] > 0
    assert values["native_ms"] > 0
    assert case["limits"]["time_ms"]["measured_by"].startswith("the model of ring")
    verdicts = ("faster", "slower", "no significant difference")
    assert case["choices"]["against native"]["value"] in verdicts
    assert "95 % interval" in case["choices"]["against native"]["reason"]
    assert case["choices"]["model"]["value"] in ("holds", "deviates")


@pytest.mark.long
def test_native_is_held_against_the_best_by_the_model(sweep):
    case = sweep.case("two[algorithm=native,size=1048576]")
    assert not {"native_ms", "bytes_sent"} & case["metrics"].keys()
    best = case["choices"]["best by the model"]
    assert best["value"] in ("ring", "bidirectional_ring", "recursive_doubling", "rabenseifner")
    assert "the MPI's own choice takes" in best["reason"]
    short = sweep.case("formats[dtype=bf16,op=sum,algorithm=native]")
    assert short["choices"]["operation"]["value"] == "registered"


@pytest.mark.long
def test_a_wrong_element_fails_the_case_wherever_it_is(tmp_path):
    options = ("--set", "iterations=2", "--set", "warmup=0", "-k", "others or rotated or hidden")
    ended = run(SUITE, *options, "--inject", "wrong-element", home=tmp_path)
    assert ended.code == 1, ended.stdout + ended.stderr
    assert set(ended.statuses.values()) == {"failed"}
    for case in ended.report["cases"]:
        failed = {check["name"]: check["ranks_failed"] for check in case["checks"]}
        assert failed["exact"] == failed["bound"] == 1
        assert case["metrics"]["wrong"]["value"] >= 4


def by_hand(ranks, *words):
    benchmark = ("-m", "spbench_workers", "allreduce.sweep", "--iterations", "2")
    return on_ranks(ranks, *benchmark, *words, **YIELDING)


def test_by_hand_it_prints_one_table():
    words = ("--algorithm", "native,ring", "--min-bytes", "8", "--max-bytes", "64", "--factor", "8")
    ended = by_hand(2, *words)
    assert ended.returncode == 0, ended.stderr
    head, _time, names, units, *rows, wrong, average = ended.stdout.splitlines()
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
    ("words", "code", "said"),
    [
        ("--size 8 --inject wrong-element", 1, "Validation failed Rank:1 exact"),
        ("--algorithm muji_4", 2, "runs on 4 ranks, not on 2"),
    ],
)
def test_by_hand_what_is_wrong_is_the_exit_status(words, code, said):
    ended = by_hand(2, *words.split())
    assert ended.returncode == code
    assert said in ended.stdout + ended.stderr
