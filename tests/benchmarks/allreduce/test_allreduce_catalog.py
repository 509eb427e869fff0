"""The parameters of ``allreduce.sweep``: which cases they make, and which of them are refused."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.benchmarks.allreduce.entry import COLLECTIVES
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.names import LIBRARIES, SCHEDULED
from spbench_workers.collectives.plan import ALGORITHMS, refusal
from spbench_workers.standalone.program import read_command_line

ENTRY = BENCHMARKS["allreduce.sweep"]


def differing(**given):
    return [differs for differs, _ in ENTRY.list_cases(given)]


def only(**given):
    [(_, params)] = ENTRY.list_cases(given)
    return params


def test_the_catalog_has_every_algorithm_and_format():
    assert set(SCHEDULED) == set(ALGORITHMS)
    assert set(ENTRY.find_param("algorithm").choices) == {*SCHEDULED, *LIBRARIES}
    assert all(ENTRY.find_param("dtype").read(dtype) in FORMATS for dtype in FORMATS)
    assert ENTRY.find_param("dtype").read("int") == "int32"


def test_a_range_is_a_case_a_size():
    assert differing(min_bytes=8, max_bytes="1KiB", factor=8) == [
        {"size": size} for size in (8, 64, 512, 1024)
    ]
    # Sizes are whole elements, and none comes twice.
    assert differing(min_bytes=0, max_bytes=20, factor=2, dtype="fp64") == [
        {"size": size} for size in (0, 8, 16)
    ]


def test_a_list_is_a_case_an_algorithm():
    assert differing(algorithm="native, ring", min_bytes=8, max_bytes=16, factor=2) == [
        {"algorithm": name, "size": size} for name in ("native", "ring") for size in (8, 16)
    ]
    assert differing(algorithm=["native", "ring"], size=8) == [
        {"algorithm": "native"},
        {"algorithm": "ring"},
    ]
    assert differing(algorithm=["ring"], size="1KiB") == [{}]
    assert only(algorithm=["ring"], size="1KiB")["algorithm"] == "ring"


def test_a_case_is_complete_and_runs_alone():
    for _, params in ENTRY.list_cases({"algorithm": "ring,flat", "rotate_roots": True}):
        assert ENTRY.complete(params) == params
        assert ENTRY.list_cases(params) == [({}, params)]
        assert params["min_bytes"] is params["max_bytes"] is params["factor"] is None


def test_each_algorithm_of_a_list_gets_what_does_something_for_it():
    given = {"algorithm": "native,ring,binomial,chain", "size": 64, "chunks": 4}
    given |= {"order": [1, 0, 2], "rotate_roots": True}
    kept = {
        params["algorithm"]: (params["order"], params["rotate_roots"], params["chunks"])
        for _, params in ENTRY.list_cases(given)
    }
    assert kept == {
        "native": (None, False, None),
        "ring": ([1, 0, 2], False, None),
        "binomial": ([1, 0, 2], True, None),
        "chain": ([1, 0, 2], True, 4),
    }


def test_ranks_follow_from_the_algorithm_and_the_order():
    assert ENTRY.ranks(only(algorithm="ring", size=8)).exact is None
    assert ENTRY.ranks(only(algorithm="ring", size=8, order="2,0,1")).exact == 3
    for name in ALGORITHMS:
        exact = ENTRY.ranks(only(algorithm=name, size=8)).exact
        assert exact is None or not refusal(name, exact)
        assert (exact is None) == (not refusal(name, 5))


def test_only_what_reduces_has_an_operation():
    reducing = {name for name in COLLECTIVES if only(collective=name, size=8)["op"] == "sum"}
    assert reducing == {"allreduce", "reduce_scatter"}


@pytest.mark.parametrize(
    ("given", "param", "message"),
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
def test_what_cannot_be_or_does_nothing_is_refused(given, param, message):
    with pytest.raises(ExceptionGroup) as caught:
        ENTRY.list_cases(given)
    [error] = caught.value.exceptions
    assert error.param == param
    assert message in str(error)


def test_by_hand_every_case_must_fit_the_ranks():
    words = ["allreduce.sweep", "--algorithm", "ring,muji_2", "--size", "8"]
    line = read_command_line(words, 2)
    assert line.entry is ENTRY
    assert [params["algorithm"] for params in line.cases] == ["ring", "muji_2"]
    with pytest.raises(ValueError, match="with algorithm muji_2 runs on 2 ranks, not on 3"):
        read_command_line(words, 3)
    muji = ["allreduce.sweep", "--algorithm", "muji", "--size", "8", "--order", "1,0,2"]
    assert len(read_command_line(muji, 3).cases) == 1
    said = r"runs on 3 ranks \(order names 3, one for each\), not on 4"
    with pytest.raises(ValueError, match=said):
        read_command_line(muji, 4)
