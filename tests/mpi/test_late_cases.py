"""Benchmarks on the device that runs late: what they do not wait for is wrong.

The cases are run in one start of MPI on two ranks, and told case by case.
"""

from dataclasses import asdict, dataclass

import pytest

from support.benchmark_cases import BenchmarkCase
from support.runs import run_cases_on_ranks

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(240)]

SIZES = [8, 1000, 1 << 20]
FEW = {"warmup": 1, "iterations": 3}


@dataclass(frozen=True)
class Case(BenchmarkCase):
    def __str__(self):
        return " ".join([self.benchmark, *self.list_arguments(FEW), self.inject or ""]).strip()


def pingpong(path, inject=None):
    params = {"device": "cuda", "path": path, "sizes": SIZES, **FEW}
    return Case("link.pingpong", params, inject)


LINKS = [pingpong(path) for path in ("auto", "pinned", "nccl")]


def sweep(algorithm, inject=None, **params):
    given = {"device": "cuda", "algorithm": algorithm, "size": 4096, **FEW, **params}
    return Case("allreduce.sweep", given, inject)


STAGED = [
    sweep("native"),
    sweep("native", in_place=True, dtype="bf16", op="max"),
    sweep("ring", mode="persistent"),
    sweep("ring", mode="nonblocking", in_place=True),
    sweep("gloo", dtype="int64"),
    *(sweep("native", collective=name) for name in ("allgather", "reduce_scatter", "alltoall")),
]
NCCL = [
    sweep("nccl"),
    sweep("nccl", in_place=False, dtype="fp64"),
    sweep("nccl", mode="nonblocking", op="prod"),
]


def store(kv_store, inject=None, **params):
    given = {"device": "cuda", "kv_store": kv_store, "network": "lenet", "num_batches": 2}
    return Case("kvstore.push_pull", given | {"image_shape": "1,28,28"} | params, inject)


STORES = [
    store("local", gpus=2),
    store("device", gpus=2, gc_type="2bit", optimizer="sgd"),
    store("dist_sync", gpus=1, num_servers=1),
    store("dist_async", gpus=1, num_servers=1, optimizer="sgd"),
    store("allreduce", gpus=2, algorithm="shared"),
    store("allreduce", gpus=2, algorithm="ring", optimizer="adam"),
]
NCCL_STORE = store("allreduce", gpus=2, algorithm="nccl")
RIGHT = [*LINKS, *STAGED, *NCCL, *STORES, NCCL_STORE]
FAULTY = [
    *(pingpong(path, "corrupt-message") for path in ("pinned", "nccl")),
    *(sweep(name, "wrong-element") for name in ("ring", "nccl")),
    *(store("device", fault, gpus=2) for fault in ("wrong-element", "lost-push")),
    store("allreduce", "double-push", gpus=2, algorithm="nccl"),
]
# Rank 0 has a GPU, rank 1 has none.
UNEVEN = [
    sweep("native", device="auto"),
    store("allreduce", gpus=2, algorithm="ring", device="auto"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Start MPI once; return by case what each rank said."""
    folder = tmp_path_factory.mktemp("late")
    cases = [*RIGHT, *FAULTY, *UNEVEN]
    said = run_cases_on_ranks(2, "late_cases.py", folder, [asdict(case) for case in cases])
    return dict(zip(map(str, cases), said, strict=True))


def of(events, kind):
    return [event for event in events if event["event"] == kind]


def limits(events):
    """Limits beside metrics, by name: value and words."""
    return {one["name"]: one for one in of(events, "metric") if "measured_by" in one}


def choices(events):
    return {one["name"]: one for one in of(events, "choice")}


@pytest.mark.parametrize("case", RIGHT, ids=str)
def test_what_was_waited_for_is_right(results, case):
    for rank, events in enumerate(results[str(case)]):
        checks = of(events, "check")
        assert checks
        assert [check for check in checks if not check["passed"]] == [], rank
        times = [value for batch in of(events, "samples") for value in batch["values"]]
        assert min(times) > 0


@pytest.mark.parametrize("case", RIGHT, ids=str)
def test_nobody_waits_for_all_streams_of_the_device(results, case):
    """With NCCL's receives posted it would be for ever."""
    assert [of(events, "waits")[0]["device_wide"] for events in results[str(case)]] == [0, 0]


@pytest.mark.parametrize("case", FAULTY, ids=str)
def test_faults_are_noticed(results, case):
    failed = [check for check in of(results[str(case)][1], "check") if not check["passed"]]
    assert failed


@pytest.mark.parametrize("case", UNEVEN, ids=str)
def test_ranks_that_reduce_together_all_have_a_gpu_or_none(results, case):
    """Each kind measures another link with all ranks, by collectives that do not match."""
    for events in results[str(case)]:
        (refused,) = of(events, "refused")
        assert refused["reason"].startswith("device auto: rank 0 on ")
        assert " computes on a GPU and rank 1 on " in refused["reason"]
        assert " computes on the host; take device cpu, or hosts " in refused["reason"]
        assert not of(events, "check")


@pytest.mark.parametrize("case", LINKS, ids=str)
def test_a_ping_pong_of_a_device_says_its_path_and_has_the_devices_limit(results, case):
    events = results[str(case)][0]
    path = choices(events)["path"]
    asked = case.params["path"]
    assert path["value"] == ("pinned" if asked == "auto" else asked)
    told = path["reason"] == "asked for"
    assert told or (asked == "auto" and "MPI" in path["reason"])
    limit = limits(events)["bandwidth_gb_s"]["measured_by"]
    assert limit == "a copy of 1048576 B within the memory of late:0 by rank 0 alone"


@pytest.mark.parametrize("case", STAGED, ids=str)
def test_what_goes_by_way_of_the_host_stands_beside_its_link_and_the_copies(results, case):
    limit = limits(results[str(case)][0])["time_ms"]
    assert limit["measured_by"].endswith("links, and copies from late to pinned memory and back")
    assert limit["value"] > 0


@pytest.mark.parametrize("case", NCCL, ids=str)
def test_nccl_stands_beside_its_own_link(results, case):
    events = results[str(case)][0]
    by = limits(events)["time_ms"]["measured_by"]
    assert by == "the model of a ring in one launch of NCCL on this job's links"
    assert ", by way of the host, 95 % interval" in choices(events)["against native"]["reason"]
    assert ("in place" in choices(events)) == (case.params.get("in_place") is False)


@pytest.mark.parametrize("case", STORES, ids=str)
def test_a_store_of_the_host_stands_beside_copies_to_it_and_back(results, case):
    by = limits(results[str(case)][0])["time_ms"]["measured_by"]
    assert " B from its GPU to the host and back by each device" in by


def test_a_store_of_nccls_stands_beside_a_copy_within_the_gpu(results):
    events = results[str(NCCL_STORE)][0]
    by = limits(events)["time_ms"]["measured_by"]
    assert " B within its GPU's memory by each device" in by
    lines = [event["message"] for event in of(events, "log")]
    assert any(line.startswith("one allreduce of all by NCCL: ") for line in lines)
    assert " B on the GPU is in each round" in choices(events)["in place"]["reason"]
