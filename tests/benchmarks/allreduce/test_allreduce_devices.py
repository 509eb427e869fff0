"""Allreduce on a GPU: synchronization, overlap, and the model of its link."""

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
from spbench_workers.collectives.distributed import DistributedAllreduce
from standins.late_device import install, unwrap
from standins.late_nccl import LateGroup
from support.allreduce_rows import RecordingSweepContext, make_sweep_row
from support.typed_params import fill_params

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
DEVICE = torch.device("late", 0)
ENTRY = BENCHMARKS["allreduce.sweep"]


class SingleRank:
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
    """Replace NCCL by a stand-in that adds 1, late."""
    monkeypatch.setattr(torch_group, "explain_missing_nccl", lambda *_: "")
    monkeypatch.setattr(torch_group, "acquire", lambda comm, _: LateGroup(comm))
    monkeypatch.setattr(torch_group, "release", lambda *_: None)


@pytest.mark.slow
def test_nccl_waits_only_for_its_stream(nccl):
    source = torch.full((4,), 2.0, device=DEVICE)
    result = torch.zeros(4, device=DEVICE)
    DistributedAllreduce(SingleRank(), "nccl", source, result, "sum").run()
    assert unwrap(result).tolist() == [3.0] * 4
    assert LATE.device_wide == 0


def list_cases(**params):
    return [
        completed
        for _, completed in ENTRY.list_cases({"size": 1 << 20, "device": "cuda", **params})
    ]


def test_nccl_reduces_in_place_by_default():
    assert list_cases(algorithm="nccl")[0]["in_place"] is True
    assert list_cases(algorithm="nccl", in_place=False)[0]["in_place"] is False
    assert list_cases(algorithm="ring")[0]["in_place"] is False
    cases = list_cases(algorithm="native,nccl")
    assert [params["in_place"] for params in cases] == [False, True]
    assert [
        params["in_place"] for params in list_cases(algorithm="native,nccl", in_place=True)
    ] == [
        True,
        True,
    ]
    assert all(ENTRY.complete(params) == params for params in cases)


def test_a_table_marks_the_change_to_in_place(messages):
    first = RecordingSweepContext(last=False)
    second = RecordingSweepContext(first=False)
    first.params = first.params | {"in_place": False}
    print_row(first, make_sweep_row(2.0, in_place=False))
    print_row(second, make_sweep_row(4.0))
    messages.check(first.lines[0])
    messages.check(second.lines[0])


class Later:
    """A reduction of some seconds on a separate stream."""

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
    """Measure by the device's clock; a matrix product takes 0.1 ms."""
    for module in (overlap, device_streams):
        monkeypatch.setattr(module, "perf_counter", LATE.clock)
    monkeypatch.setattr(torch, "mm", lambda *_, out: LATE.work(1e-4))


@pytest.mark.parametrize("seconds", [0.002, 0.05])
def test_work_of_the_gpu_hides_a_reduction(clock, seconds):
    assert overlap.measure_overlap(SingleRank(), Later(seconds), seconds, DEVICE) == pytest.approx(
        1.0
    )


def test_a_reduction_on_the_working_stream_is_exposed(clock):
    class Immediate(Later):
        def start(self):
            LATE.work(self.seconds)

    assert overlap.measure_overlap(SingleRank(), Immediate(0.01), 0.01, DEVICE) == pytest.approx(
        0.0
    )


@pytest.mark.parametrize(("algorithm", "longest"), [("nccl", 2.0), ("ring", 1e-3)])
def test_interleaved_turns_have_the_length_of_the_slower(clock, monkeypatch, algorithm, longest):
    """For 1 GiB, MPI takes seconds over the host, and NCCL takes milliseconds."""
    lengths = []
    monkeypatch.setattr(sweep_benchmark, "perf_counter", LATE.clock)
    monkeypatch.setattr(sweep_benchmark, "open_allreduce", lambda *_: Later(2.0))
    monkeypatch.setattr(
        sweep_benchmark, "compare_interleaved", lambda *arguments: lengths.append(arguments[3])
    )
    monkeypatch.setattr(Later, "free", lambda _: None, raising=False)
    world = SimpleNamespace(comm=SingleRank())
    params = {"algorithm": algorithm, "op": "sum", "iterations": 5}
    case = SimpleNamespace(
        read_params=lambda cls: fill_params(cls, params),
        world=world,
        largest=lambda seconds: seconds,
    )
    buffers = SimpleNamespace(source=None, result=None)
    sweep_benchmark._compare_with_native(case, SingleRank(), buffers, Later(1e-3), 1e-3)
    assert lengths == [pytest.approx(longest)]


SIZES = (8, 1 << 10, 1 << 16, 1 << 20)
MB = 1 << 20


def make_line(start, slope):
    return fit_line([(size, start + slope * size) for size in SIZES])


def make_link(copies=None, up_to=MB):
    messages = [(size, 1e-6 + 1e-10 * size) for size in SIZES]
    sums = [(size, 1e-7 + 1e-10 * size) for size in SIZES]
    return JobLink(fit_link(messages, sums), make_line(1e-7, 2e-10), copies, up_to)


COPIES = StagingCopies(make_line(1e-5, 4e-11), make_line(2e-5, 5e-11))


def complete_params(**params):
    return ENTRY.complete({"size": MB, "device": "cuda", **params})


def sweep_params(**params):
    return fill_params(SweepParams, complete_params(**params))


def test_a_staged_prediction_includes_both_copies():
    by_host = predict(sweep_params(algorithm="ring"), 4, MB, make_link())
    staged = predict(sweep_params(algorithm="ring"), 4, MB, make_link(COPIES), (MB, MB))
    copies_seconds = 1e-5 + 4e-11 * MB + 2e-5 + 5e-11 * MB
    assert staged.seconds == pytest.approx(by_host.seconds + copies_seconds, rel=1e-6)
    low, high = staged.interval
    assert by_host.interval[0] < low <= staged.seconds <= high
    gather = predict(sweep_params(collective="allgather"), 4, MB, make_link(COPIES), (MB // 4, MB))
    plain = predict(sweep_params(collective="allgather"), 4, MB, make_link())
    gather_copies_seconds = 1e-5 + 4e-11 * MB / 4 + 2e-5 + 5e-11 * MB
    assert gather.seconds == pytest.approx(plain.seconds + gather_copies_seconds, rel=1e-6)


def test_empty_copies_take_no_time():
    assert COPIES.predict_seconds((0, 0)) == 0.0
    assert COPIES.predict_interval((0, 0)) == (0.0, 0.0)
    empty = ENTRY.complete({"size": 0, "algorithm": "ring", "device": "cuda"})
    params = fill_params(SweepParams, empty)
    assert predict(params, 4, 0, make_link(COPIES), (0, 0)).seconds == 0.0


def test_nccl_is_predicted_as_a_ring_in_one_launch(messages):
    predicted = predict(sweep_params(algorithm="nccl"), 4, MB, make_link(), (MB, MB))
    assert predicted.seconds == pytest.approx(1e-6 + 1.5 * MB * 1e-10, rel=1e-6)
    messages.check(predicted.basis)
    out_of_place = predict(sweep_params(algorithm="nccl", in_place=False), 4, MB, make_link())
    assert out_of_place.seconds == pytest.approx(predicted.seconds + 2e-10 * MB, rel=1e-6)
    assert predict(sweep_params(algorithm="nccl"), 1, MB, make_link()).seconds == 0.0


@pytest.mark.parametrize(
    ("device", "nccl", "measured"),
    [
        ("cpu", False, ["host"]),
        ("late", False, ["host", "copies"]),
        ("late", True, ["nccl"]),
    ],
)
def test_path_and_memory_determine_the_link(monkeypatch, device, nccl, measured):
    calls = []

    def make_recorder(name, result):
        def record(*_):
            calls.append(name)
            return result

        return record

    monkeypatch.setattr(job_link, "_links", {})
    monkeypatch.setattr(job_link, "measure_host_link", make_recorder("host", make_link()))
    monkeypatch.setattr(job_link, "_measure_copies", make_recorder("copies", COPIES))
    monkeypatch.setattr(
        job_link, "_measure_nccl_link", make_recorder("nccl", make_link(up_to=64 * MB))
    )
    device_ = torch.device(device)
    for _ in range(2):
        link = job_link.measure_link(SingleRank(), torch.float32, "sum", device_, nccl=nccl)
    assert calls == measured
    assert (link.staging is COPIES) == ("copies" in measured)
    assert link.max_bytes == (64 * MB if nccl else MB)


def test_links_of_the_device_are_timed_to_completion(monkeypatch):
    """Copies, sums and waits are timed; work that is not awaited would take no time."""
    finished = []

    def measure(comm, sizes, make_body):
        for size in sizes[:1]:
            make_body(size)()
            finished.append(
                all(stream.done == stream.enqueued for stream in (LATE.main, LATE.copies))
            )
        return [(size, 1e-6 + 1e-10 * size) for size in sizes]

    monkeypatch.setattr(job_link, "measure_together", measure)
    job_link._measure_copies(SingleRank(), DEVICE)
    job_link._measure_nccl_link(SingleRank(), torch.float32, "sum", DEVICE)
    assert finished == [True] * 3


class Case(RecordingSweepContext):
    """A case on rank 0 of two that keeps its reports."""

    def __init__(self, **params):
        super().__init__()
        self.params = complete_params(**params)
        comm = SimpleNamespace(allgather=lambda value: [value, value])
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


def report_case(monkeypatch, link, device=DEVICE, seconds=None, **params):
    monkeypatch.setattr(findings, "measure_link", lambda *_, **__: link)
    monkeypatch.setattr(findings, "is_oversubscribed", lambda _: False)
    case = Case(**params)
    ends = (MB, MB)
    seconds = seconds or predict(case.read_params(SweepParams), 2, MB, link, ends).seconds
    measured = MeasuredTimes(MB // 4, torch.device(device), ends, [seconds] * 3, [seconds] * 2)
    findings.report_findings(case, measured, None, 0)
    return case


def test_a_staged_case_does_not_deviate_for_its_copies(monkeypatch, messages):
    slow = StagingCopies(make_line(1e-3, 1e-9), make_line(1e-3, 1e-9))
    case = report_case(monkeypatch, make_link(slow), algorithm="ring")
    assert case.choices["model"][0] == "holds"
    _, by = case.limits["time_ms"]
    messages.check(by)
    # The link of the host without copies.
    model_seconds = predict(
        sweep_params(algorithm="ring"), 2, MB, make_link(slow), (MB, MB)
    ).seconds
    case = report_case(monkeypatch, make_link(), algorithm="ring", seconds=model_seconds)
    assert case.choices["model"][0] == "deviates"


def test_nccl_out_of_place_reports_a_copy(monkeypatch, messages):
    link = make_link(up_to=64 * MB)
    assert "in place" not in report_case(monkeypatch, link, algorithm="nccl").choices
    case = report_case(monkeypatch, link, algorithm="nccl", in_place=False)
    reason = f"NCCL reduces in place: a copy of {MB} B on the GPU is in the time"
    assert case.choices["in place"] == ("off", reason)
    messages.check(case.limits["time_ms"][1])


def test_rejects_nccl_if_ranks_share_a_gpu(monkeypatch, messages):
    monkeypatch.setattr(torch_group, "explain_missing_nccl", lambda *_: "needs more")
    vector = torch.zeros(2, device=DEVICE)
    with messages.raises(CannotRunError):
        DistributedAllreduce(SingleRank(), "nccl", vector, vector, "sum")
