"""Allreduce on a GPU: what is waited for, what hides it, and the model of its own link."""

from types import SimpleNamespace

import pytest
import torch

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.device import streams as device_streams
from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p import torch_group
from spbench_workers.benchmarks.allreduce import findings, overlap
from spbench_workers.benchmarks.allreduce import sweep as sweep_benchmark
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.findings import MeasuredTimes, print_row
from spbench_workers.benchmarks.allreduce.model import job_link
from spbench_workers.benchmarks.allreduce.model.link_fit import fit_line, fit_link
from spbench_workers.benchmarks.allreduce.model.link_times import JobLink, StagingCopies
from spbench_workers.benchmarks.allreduce.model.prediction import predict
from spbench_workers.collectives.distributed import DistributedReduction
from standins.late_device import elem_of, install
from standins.late_nccl import LateGroup
from unit.allreduce_rows import Said, row
from unit.typed_params import typed

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
DEVICE = torch.device("late", 0)
ENTRY = BENCHMARKS["allreduce.sweep"]


class Alone:
    """A communicator of one rank."""

    handle = 1
    rank = 0
    size = 1

    def Dup(self):  # noqa: N802
        return self

    def Allreduce(self, send, vector, op):  # noqa: N802
        vector[:] += 1

    def Barrier(self):  # noqa: N802
        pass


@pytest.fixture
def nccl(monkeypatch):
    """A stand-in for NCCL that adds 1, later."""
    monkeypatch.setattr(torch_group, "nccl_refusal", lambda *_: "")
    monkeypatch.setattr(torch_group, "acquire", lambda comm, _: LateGroup(comm))
    monkeypatch.setattr(torch_group, "release", lambda *_: None)


@pytest.mark.slow
def test_nccl_waits_for_its_own_stream_and_no_other(nccl):
    source = torch.full((4,), 2.0, device=DEVICE)
    result = torch.zeros(4, device=DEVICE)
    DistributedReduction(Alone(), "nccl", source, result, "sum").run()
    assert elem_of(result).tolist() == [3.0] * 4
    assert LATE.device_wide == 0


def sweep(**given):
    return [params for _, params in ENTRY.list_cases({"size": 1 << 20, "device": "cuda", **given})]


def test_nccl_reduces_in_place_unless_it_is_told_not_to():
    assert sweep(algorithm="nccl")[0]["in_place"] is True
    assert sweep(algorithm="nccl", in_place=False)[0]["in_place"] is False
    assert sweep(algorithm="ring")[0]["in_place"] is False
    both = sweep(algorithm="native,nccl")
    assert [params["in_place"] for params in both] == [False, True]
    assert [params["in_place"] for params in sweep(algorithm="native,nccl", in_place=True)] == [
        True,
        True,
    ]
    assert all(ENTRY.complete(params) == params for params in both)


def test_a_table_says_from_where_on_it_is_in_place():
    first = Said(last=False)
    second = Said(first=False)
    first.params = first.params | {"in_place": False}
    print_row(first, row(2.0, in_place=False))
    print_row(second, row(4.0))
    assert first.lines[0] == "# allreduce, blocking, out of place, 2 ranks"
    assert second.lines[0] == "# from here on in place"


class Later:
    """A reduction of so many seconds on a stream of its own."""

    def __init__(self, seconds):
        self.seconds = seconds

    def start(self):
        LATE.streams.fork_copy_stream()
        with LATE.streams.use_copy_stream():
            LATE.work(self.seconds)

    def poll(self):
        return False

    def wait(self):
        LATE.streams.join_copy_stream()
        LATE.streams.synchronize()

    def run(self):
        self.start()
        self.wait()


@pytest.fixture
def clock(monkeypatch):
    """The device's clock, by which a matrix product takes 0.1 ms of the current stream."""
    for module in (overlap, device_streams):
        monkeypatch.setattr(module, "perf_counter", LATE.clock)
    monkeypatch.setattr(torch, "mm", lambda *_, out: LATE.work(1e-4))


@pytest.mark.parametrize("seconds", [0.002, 0.05])
def test_what_the_gpu_reduces_is_hidden_by_work_of_the_gpu(clock, seconds):
    assert overlap.measure_overlap(Alone(), Later(seconds), seconds, DEVICE) == pytest.approx(1.0)


def test_a_reduction_on_the_stream_of_the_work_is_not_hidden(clock):
    class Here(Later):
        def start(self):
            LATE.work(self.seconds)

    assert overlap.measure_overlap(Alone(), Here(0.01), 0.01, DEVICE) == pytest.approx(0.0)


@pytest.mark.parametrize(("algorithm", "longest"), [("nccl", 2.0), ("ring", 1e-3)])
def test_turns_are_as_long_as_the_slower_way(clock, monkeypatch, algorithm, longest):
    """Of 1 GiB the MPI's own, by way of the host, takes seconds, and NCCL milliseconds."""
    said = []
    monkeypatch.setattr(sweep_benchmark, "perf_counter", LATE.clock)
    monkeypatch.setattr(sweep_benchmark, "open_reduction", lambda *_: Later(2.0))
    monkeypatch.setattr(
        sweep_benchmark, "compare_interleaved", lambda *words: said.append(words[3])
    )
    monkeypatch.setattr(Later, "free", lambda _: None, raising=False)
    world = SimpleNamespace(comm=Alone())
    params = {"algorithm": algorithm, "op": "sum", "iterations": 5}
    case = SimpleNamespace(
        read_params=lambda cls: typed(cls, params), world=world, largest=lambda seconds: seconds
    )
    buffers = SimpleNamespace(source=None, result=None)
    sweep_benchmark._compare_with_native(case, Alone(), buffers, Later(1e-3), 1e-3)
    assert said == [pytest.approx(longest)]


SIZES = (8, 1 << 10, 1 << 16, 1 << 20)
MB = 1 << 20


def line_of(start, slope):
    return fit_line([(size, start + slope * size) for size in SIZES])


def link_of(copies=None, up_to=MB):
    messages = [(size, 1e-6 + 1e-10 * size) for size in SIZES]
    sums = [(size, 1e-7 + 1e-10 * size) for size in SIZES]
    return JobLink(fit_link(messages, sums), line_of(1e-7, 2e-10), copies, up_to)


COPIES = StagingCopies(line_of(1e-5, 4e-11), line_of(2e-5, 5e-11))


def params_of(**given):
    return ENTRY.complete({"size": MB, "device": "cuda", **given})


def sweep_params(**given):
    return typed(SweepParams, params_of(**given))


def test_a_staged_prediction_has_the_copies_from_the_gpu_and_back():
    by_host = predict(sweep_params(algorithm="ring"), 4, MB, link_of())
    staged = predict(sweep_params(algorithm="ring"), 4, MB, link_of(COPIES), (MB, MB))
    around = 1e-5 + 4e-11 * MB + 2e-5 + 5e-11 * MB
    assert staged.seconds == pytest.approx(by_host.seconds + around, rel=1e-6)
    low, high = staged.interval
    assert by_host.interval[0] < low <= staged.seconds <= high
    gather = predict(sweep_params(collective="allgather"), 4, MB, link_of(COPIES), (MB // 4, MB))
    plain = predict(sweep_params(collective="allgather"), 4, MB, link_of())
    both = 1e-5 + 4e-11 * MB / 4 + 2e-5 + 5e-11 * MB
    assert gather.seconds == pytest.approx(plain.seconds + both, rel=1e-6)


def test_nothing_to_copy_takes_no_time():
    assert COPIES.predict_seconds((0, 0)) == 0.0
    assert COPIES.predict_interval((0, 0)) == (0.0, 0.0)
    nothing = ENTRY.complete({"size": 0, "algorithm": "ring", "device": "cuda"})
    params = typed(SweepParams, nothing)
    assert predict(params, 4, 0, link_of(COPIES), (0, 0)).seconds == 0.0


def test_nccl_is_a_rings_bytes_in_one_launch():
    predicted = predict(sweep_params(algorithm="nccl"), 4, MB, link_of(), (MB, MB))
    assert predicted.seconds == pytest.approx(1e-6 + 1.5 * MB * 1e-10, rel=1e-6)
    assert predicted.basis == "a ring in one launch of NCCL"
    out_of_place = predict(sweep_params(algorithm="nccl", in_place=False), 4, MB, link_of())
    assert out_of_place.seconds == pytest.approx(predicted.seconds + 2e-10 * MB, rel=1e-6)
    assert predict(sweep_params(algorithm="nccl"), 1, MB, link_of()).seconds == 0.0


@pytest.mark.parametrize(
    ("device", "nccl", "measured"),
    [
        ("cpu", False, ["host"]),
        ("late", False, ["host", "copies"]),
        ("late", True, ["nccl"]),
    ],
)
def test_the_link_of_a_case_is_that_of_its_path_and_memory(monkeypatch, device, nccl, measured):
    done = []

    def note(name, made):
        def noted(*_):
            done.append(name)
            return made

        return noted

    monkeypatch.setattr(job_link, "_links", {})
    monkeypatch.setattr(job_link, "measure_host_link", note("host", link_of()))
    monkeypatch.setattr(job_link, "_measure_copies", note("copies", COPIES))
    monkeypatch.setattr(job_link, "_measure_nccl_link", note("nccl", link_of(up_to=64 * MB)))
    place = torch.device(device)
    for _ in range(2):
        link = job_link.measure_link(Alone(), torch.float32, "sum", place, nccl=nccl)
    assert done == measured
    assert (link.staging is COPIES) == ("copies" in measured)
    assert link.max_bytes == (64 * MB if nccl else MB)


def test_links_of_the_device_are_timed_until_it_is_done(monkeypatch):
    """Each copy, sum and wait of a rank alone; what was not waited for takes no time."""
    timed = []

    def time_of(comm, sizes, body_of):
        for size in sizes[:1]:
            body_of(size)()
            timed.append(all(stream.done == stream.asked for stream in (LATE.main, LATE.copies)))
        return [(size, 1e-6 + 1e-10 * size) for size in sizes]

    monkeypatch.setattr(job_link, "measure_together", time_of)
    job_link._measure_copies(Alone(), DEVICE)
    job_link._measure_nccl_link(Alone(), torch.float32, "sum", DEVICE)
    assert timed == [True] * 3


class Case(Said):
    """A case on rank 0 of two, which keeps what is said of it."""

    def __init__(self, **given):
        super().__init__()
        self.params = params_of(**given)
        comm = SimpleNamespace(allgather=lambda mine: [mine, mine])
        self.world = SimpleNamespace(size=2, rank=0, comm=comm)
        self.limits = {}
        self.choices = {}
        self.metrics = {}

    def limit(self, name, value, by):
        self.limits[name] = value, by

    def choice(self, name, value, reason):
        self.choices[name] = value, reason

    def metric(self, name, value, **_):
        self.metrics[name] = value

    def log(self, *_):
        pass


def found(monkeypatch, link, device=DEVICE, seconds=None, **given):
    monkeypatch.setattr(findings, "measure_link", lambda *_, **__: link)
    monkeypatch.setattr(findings, "is_oversubscribed", lambda _: False)
    case = Case(**given)
    ends = (MB, MB)
    seconds = seconds or predict(case.read_params(SweepParams), 2, MB, link, ends).seconds
    measured = MeasuredTimes(MB // 4, torch.device(device), ends, [seconds] * 3, [seconds] * 2)
    findings.report_findings(case, measured, None, 0)
    return case


def test_a_staged_case_does_not_deviate_for_its_copies(monkeypatch):
    slow = StagingCopies(line_of(1e-3, 1e-9), line_of(1e-3, 1e-9))
    case = found(monkeypatch, link_of(slow), algorithm="ring")
    assert case.choices["model"][0] == "holds"
    _, by = case.limits["time_ms"]
    assert (
        by
        == "the model of ring on this job's links, and copies from late to pinned memory and back"
    )
    # The host's link alone, as it was.
    taken = predict(sweep_params(algorithm="ring"), 2, MB, link_of(slow), (MB, MB)).seconds
    case = found(monkeypatch, link_of(), algorithm="ring", seconds=taken)
    assert case.choices["model"][0] == "deviates"


def test_nccl_out_of_place_says_that_a_copy_is_in_its_time(monkeypatch):
    link = link_of(up_to=64 * MB)
    assert "in place" not in found(monkeypatch, link, algorithm="nccl").choices
    case = found(monkeypatch, link, algorithm="nccl", in_place=False)
    reason = f"NCCL reduces in place: a copy of {MB} B on the GPU is in the time"
    assert case.choices["in place"] == ("off", reason)
    assert (
        case.limits["time_ms"][1] == "the model of a ring in one launch of NCCL on this job's links"
    )


def test_nccl_is_refused_where_ranks_share_a_gpu(monkeypatch):
    monkeypatch.setattr(torch_group, "nccl_refusal", lambda *_: "needs more")
    vector = torch.zeros(2, device=DEVICE)
    with pytest.raises(CannotRunError, match="algorithm nccl needs more; choose another"):
        DistributedReduction(Alone(), "nccl", vector, vector, "sum")
