"""Parameters of ``allreduce.sweep``: its cases, and rejected values."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.benchmarks.allreduce.entry import COLLECTIVES
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.base import LIBRARIES, SCHEDULED
from spbench_workers.collectives.plan import ALGORITHMS, explain_unsupported
from spbench_workers.standalone.program import read_command_line

ENTRY = BENCHMARKS["allreduce.sweep"]


def list_differences(**params):
    return [differs for differs, _ in ENTRY.list_cases(params)]


def complete_single_case(**params):
    [(_, completed)] = ENTRY.list_cases(params)
    return completed


def test_the_catalog_has_every_algorithm_and_format():
    assert set(SCHEDULED) == set(ALGORITHMS)
    assert set(ENTRY.find_param("algorithm").choices) == {*SCHEDULED, *LIBRARIES}
    assert all(ENTRY.find_param("dtype").read(dtype) in FORMATS for dtype in FORMATS)
    assert ENTRY.find_param("dtype").read("int") == "int32"


def test_a_range_makes_a_case_per_size():
    assert list_differences(min_bytes=8, max_bytes="1KiB", factor=8) == [
        {"size": size} for size in (8, 64, 512, 1024)
    ]
    # Sizes are multiples of elements without repetitions.
    assert list_differences(min_bytes=0, max_bytes=20, factor=2, dtype="fp64") == [
        {"size": size} for size in (0, 8, 16)
    ]


def test_a_list_makes_a_case_per_algorithm():
    assert list_differences(algorithm="native, ring", min_bytes=8, max_bytes=16, factor=2) == [
        {"algorithm": name, "size": size} for name in ("native", "ring") for size in (8, 16)
    ]
    assert list_differences(algorithm=["native", "ring"], size=8) == [
        {"algorithm": "native"},
        {"algorithm": "ring"},
    ]
    assert list_differences(algorithm=["ring"], size="1KiB") == [{}]
    assert complete_single_case(algorithm=["ring"], size="1KiB")["algorithm"] == "ring"


def test_a_case_is_complete():
    for _, params in ENTRY.list_cases({"algorithm": "ring,flat", "rotate_roots": True}):
        assert ENTRY.complete(params) == params
        assert ENTRY.list_cases(params) == [({}, params)]
        assert params["min_bytes"] is params["max_bytes"] is params["factor"] is None


def test_each_algorithm_gets_only_effective_parameters():
    params = {"algorithm": "native,ring,binomial,chain", "size": 64, "chunks": 4}
    params |= {"order": [1, 0, 2], "rotate_roots": True}
    effective = {
        completed["algorithm"]: (completed["order"], completed["rotate_roots"], completed["chunks"])
        for _, completed in ENTRY.list_cases(params)
    }
    assert effective == {
        "native": (None, False, None),
        "ring": ([1, 0, 2], False, None),
        "binomial": ([1, 0, 2], True, None),
        "chain": ([1, 0, 2], True, 4),
    }


def test_algorithm_and_order_determine_the_ranks():
    assert ENTRY.ranks(complete_single_case(algorithm="ring", size=8)).exact is None
    assert ENTRY.ranks(complete_single_case(algorithm="ring", size=8, order="2,0,1")).exact == 3
    for name in ALGORITHMS:
        exact = ENTRY.ranks(complete_single_case(algorithm=name, size=8)).exact
        assert exact is None or not explain_unsupported(name, exact)
        assert (exact is None) == (not explain_unsupported(name, 5))


def test_only_reductions_have_an_operation():
    reducing = {
        name for name in COLLECTIVES if complete_single_case(collective=name, size=8)["op"] == "sum"
    }
    assert reducing == {"allreduce", "reduce_scatter"}


@pytest.mark.parametrize(
    ("params", "param", "message"),
    [
        ({"size": 8, "factor": 2}, "size", "size is one size, and factor is of a range"),
        ({"size": 10}, "size", "10 bytes hold no whole number of fp32 elements"),
        ({"min_bytes": "2MiB"}, "min_bytes", "min_bytes 2097152 is more than max_bytes 1048576"),
        ({"max_bytes": 4}, "max_bytes", "min_bytes 8 is more than max_bytes 4"),
        ({"factor": 1}, "factor", "below the least value, 1.01"),
        ({"algorithm": "rnig"}, "algorithm", "'rnig' is none of native"),
        ({"algorithm": "ring,ring"}, "algorithm", "ring is listed twice"),
        ({"collective": "alltoall", "algorithm": "ring"}, "algorithm", "ring does no alltoall"),
        ({"collective": "allgather", "op": "max"}, "op", "allgather reduces nothing"),
        ({"order": "1,0"}, "order", "order does nothing for native"),
        ({"rotate_roots": True, "algorithm": "ring"}, "rotate_roots", "does nothing for ring"),
        ({"group": 2, "algorithm": "flat,ring"}, "group", "does nothing for flat, ring"),
        ({"chunks": 2, "algorithm": "ring"}, "chunks", "chunks does nothing for ring"),
        ({"algorithm": "ring", "order": "0,2"}, "order", "each rank from 0 up once, not [0, 2]"),
        ({"algorithm": "muji_4", "order": "1,0"}, "order", "muji_4 is drawn for 4"),
        ({"algorithm": "gloo", "mode": "persistent"}, "mode", "gloo has no persistent mode"),
        ({"algorithm": "nccl", "device": "cpu"}, "device", "nccl needs a GPU"),
        ({"op": "xor"}, "op", "'xor' is none of sum"),
    ],
)
def test_rejects_invalid_and_ineffective_parameters(params, param, message):
    with pytest.raises(ExceptionGroup) as caught:
        ENTRY.list_cases(params)
    [error] = caught.value.exceptions
    assert error.param == param
    assert message in str(error)


def test_rejects_standalone_cases_for_other_ranks(messages):
    arguments = ["allreduce.sweep", "--algorithm", "ring,muji_2", "--size", "8"]
    line = read_command_line(arguments, 2)
    assert line.entry is ENTRY
    assert [params["algorithm"] for params in line.cases] == ["ring", "muji_2"]
    with messages.raises(ValueError):
        read_command_line(arguments, 3)
    muji = ["allreduce.sweep", "--algorithm", "muji", "--size", "8", "--order", "1,0,2"]
    assert len(read_command_line(muji, 3).cases) == 1
    expected = r"runs on 3 ranks \(order names 3, one for each\), not on 4"
    with pytest.raises(ValueError, match=expected):
        read_command_line(muji, 4)
