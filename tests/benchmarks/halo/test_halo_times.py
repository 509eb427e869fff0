"""Times and limits of the halo benchmarks on a device that works late."""

from types import SimpleNamespace

import pytest
import torch

from spbench_core.layout.partition import Piece
from spbench_core.layout.tiles import Box
from spbench_parallel.device import streams
from spbench_workers.benchmarks.halo import conv_times, report
from standins.late_device import install
from support.recording_context import find_events, get_choice, get_metric, make_context

LATE = install()
DEVICE = torch.device("late", 0)
PARAMS = {"image_size": 12, "grid": "1x1", "device": "cpu"}


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    LATE.reset()
    for module in (conv_times, report, streams):
        monkeypatch.setattr(module, "perf_counter", LATE.clock)
    yield
    LATE.streams.synchronize_device()


@pytest.fixture
def context():
    return make_context("halo.compute", **PARAMS)


class Output:
    """The result of a queued forward pass of 10 ms with a backward pass of 2 ms."""

    shape = (1, 1, 2, 2)

    def __init__(self):
        LATE.work(0.010)

    def backward(self, gradient):
        LATE.work(0.002)


class Module:
    """A stand-in for a convolution over tiles."""

    gradient_dtype = None

    def __call__(self, tile):
        return Output()

    def parameters(self):
        return [torch.ones(3, device="late")]


def make_convolution(**fields):
    tile = torch.zeros((1, 1, 2, 2), device="late")
    return SimpleNamespace(module=Module(), tile=tile, device=DEVICE, **fields)


def test_times_backward_without_the_forward(context, monkeypatch):
    monkeypatch.setattr(conv_times, "allreduce_sum", lambda *_: LATE.work(0.001))
    conv_times.report_backward(context, make_convolution())
    assert get_metric(context, "backward_ms") == pytest.approx(2.0)
    assert get_metric(context, "gradient_sum_ms") == pytest.approx(1.0)


def test_forward_waits_for_its_work():
    conv_times.TiledConvolution(Module(), None, None, None, DEVICE).forward()
    assert LATE.clock() == pytest.approx(0.010)


def test_times_computation_without_queued_work(context, monkeypatch):
    LATE.work(0.5)
    execution = SimpleNamespace(compute=lambda *_: LATE.work(0.003))
    module = SimpleNamespace(operator=lambda: None)
    gather = SimpleNamespace(start=lambda tile: LATE.work(0.2), finish=lambda flight: ())
    convolution = SimpleNamespace(
        module=module, execution=execution, tile=None, gather=gather, device=DEVICE
    )
    times = record_medians(monkeypatch, conv_times)
    assert conv_times._measure_compute_ms(context, convolution) == pytest.approx(3.0)
    assert times == pytest.approx([0.003] * conv_times.ROUNDS)


class Exchange:
    """A stand-in for an exchange that queues its work.

    It packs in 1 ms, travels in 4 ms and unpacks in 2 ms.
    """

    def __init__(self, transport="cuda", memory_path=("pinned", "asked for"), bytes_=4096):
        self.transport = transport
        self.memory_path = memory_path
        self.tried_ms = {}
        self.outgoing = [Piece(0, Box((0, 1), (0, bytes_)))]
        self.start = lambda: LATE.work(0.001)
        self.wait = lambda: LATE.work(0.004)
        self.unpack = lambda: LATE.work(0.002)
        self.release = lambda: None

    def count_piece_bytes(self, piece):
        return piece.box.width


def test_times_an_exchange_without_queued_work(context, monkeypatch):
    monkeypatch.setattr(report, "median", max)
    LATE.work(0.5)
    phases = report.measure_phases(context, Exchange(), DEVICE)
    assert phases.total == pytest.approx(7.0)
    # A wait for all streams may never end while a receive of NCCL is posted.
    assert LATE.device_wide == 0


def test_a_rank_that_sends_nothing_reports_no_wait(context):
    report.report_phases(context, report.ExchangePhases(1.0, 2.0, 3.0), [], DEVICE)
    assert get_metric(context, "pack_ms") == 0.0
    assert not find_events(context, "metric", name="wait_ms")


def record_medians(monkeypatch, module):
    """Return a list of the times of which a module takes the median.

    The median becomes the first of them.
    """
    times = []

    def median(values):
        times.extend(values)
        return times[0]

    monkeypatch.setattr(module, "median", median)
    return times


def test_times_copies_without_queued_work(monkeypatch):
    LATE.work(0.5)
    times = record_medians(monkeypatch, report)
    source = torch.ones(4, device="late")
    report._measure_copies([(torch.zeros(4, device="late"), source)])
    assert times == pytest.approx([0.0] * report.COPY_ROUNDS)
    assert LATE.clock() == pytest.approx(0.5)


@pytest.fixture
def pings(monkeypatch):
    """Return the requested ping-pongs, which are not run."""
    requests = []

    def ping_device(peer, count, trips, *, device, path):
        requests.append((path, device, count))
        return 0.001

    def ping_host(peer, count, trips):
        requests.append(("host", torch.device("cpu"), count))
        return 0.001

    monkeypatch.setattr(report, "measure_one_way_on_devices", ping_device)
    monkeypatch.setattr(report, "measure_one_way", ping_host)
    return requests


@pytest.mark.parametrize(
    ("transport", "memory_path", "path", "expected"),
    [
        ("cuda", ("pinned", "MPI says no"), "pinned", "by way of pinned memory"),
        ("cuda", ("device pointers", "MPI says yes"), "pointers", "given device pointers"),
        ("nccl", None, "nccl", "by NCCL"),
        ("packed", None, "host", "one-way ping-pong of 4096 B, rank 0 to 0"),
    ],
)
def test_the_limit_is_a_ping_pong_on_the_same_path(
    context, pings, monkeypatch, transport, memory_path, path, expected
):
    opened_paths = []

    class OpenPath:
        def __enter__(self):
            opened_paths.append(path)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(report, "open_path", lambda comm, device, path: OpenPath())
    device = torch.device("cpu") if path == "host" else DEVICE
    pixels = [torch.zeros(4096, dtype=torch.uint8, device=device)]
    exchange = Exchange(transport, memory_path)
    report.report_limits(context, exchange, pixels, pixels, 7.0, "exchange_ms", device)
    assert pings == [(path, device, 4096)]
    assert opened_paths == ([] if path == "host" else [path])
    (limit,) = find_events(context, "metric", name="exchange_ms")
    assert expected in limit["measured_by"]
    assert limit["value"] == pytest.approx(1.0, abs=0.2 if path == "host" else 1e-6)


def test_reports_the_memory_of_mpi_as_a_choice(context):
    report.report_choice(context, Exchange(memory_path=("device pointers", "Open MPI says so")))
    assert get_choice(context, "gpu_memory") == ("device pointers", "Open MPI says so")


def test_reports_no_memory_choice_on_the_host(context):
    report.report_choice(context, Exchange("packed", None))
    assert not find_events(context, "choice", name="gpu_memory")


def make_image(values):
    return SimpleNamespace(batch=1, channels=1, height=1, width=values)


CASE = SimpleNamespace(
    image=make_image(1 << 20), gradient=make_image(1 << 20), template=torch.zeros(1)
)


@pytest.fixture
def sequential(monkeypatch):
    """Make one process take 5 ms, or raise the error in the returned list."""
    errors = []

    def time_sequential(*_):
        if errors:
            raise errors[0]
        return 0.005

    monkeypatch.setattr(conv_times, "_time_sequential", time_sequential)
    monkeypatch.setattr(conv_times, "read_free_bytes", lambda device: 1 << 30)
    return errors


def test_reports_speedup_over_one_process(context, sequential):
    conv_times.report_speedup(context, make_convolution(), CASE, 2.0)
    assert get_metric(context, "sequential_ms") == pytest.approx(5.0)
    assert get_metric(context, "speedup") == pytest.approx(2.5)


def test_skips_one_process_without_enough_gpu_memory(context, sequential, monkeypatch, messages):
    monkeypatch.setattr(
        conv_times, "read_free_bytes", lambda device: (1 << 20) * (device == DEVICE)
    )
    conv_times.report_speedup(context, make_convolution(), CASE, 2.0)
    assert not find_events(context, "metric")
    (log,) = find_events(context, "log")
    messages.check(log["message"])


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        MemoryError(),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_running_out_of_memory_does_not_end_the_case(context, sequential, error, messages):
    sequential.append(error)
    conv_times.report_speedup(context, make_convolution(), CASE, 2.0)
    assert not find_events(context, "metric")
    (log,) = find_events(context, "log")
    messages.check(log["message"])


def test_another_error_of_one_process_ends_the_case(context, sequential):
    sequential.append(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal"):
        conv_times.report_speedup(context, make_convolution(), CASE, 2.0)
