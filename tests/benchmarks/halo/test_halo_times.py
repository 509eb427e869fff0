"""Times of the halo benchmarks on a device whose work is done late, and their limits."""

from types import SimpleNamespace

import pytest
import torch

from spbench_core.layout.partition import Piece
from spbench_core.layout.tiles import Box
from spbench_parallel.device import streams
from spbench_workers.benchmarks.halo import conv_times, report
from standins.late_device import install
from unit.recorded import choice_of, context_of, said, value_of

LATE = install()
PLACE = torch.device("late", 0)
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
    return context_of("halo.compute", **PARAMS)


class Output:
    """The result of a forward pass of 10 ms that is queued; its backward takes 2 ms."""

    shape = (1, 1, 2, 2)

    def __init__(self):
        LATE.work(0.010)

    def backward(self, gradient):
        LATE.work(0.002)


class Module:
    """The stand-in for a convolution over tiles."""

    gradient_dtype = None

    def __call__(self, tile):
        return Output()

    def parameters(self):
        return [torch.ones(3, device="late")]


def convolution(**fields):
    tile = torch.zeros((1, 1, 2, 2), device="late")
    return SimpleNamespace(module=Module(), tile=tile, device=PLACE, **fields)


def test_backward_is_timed_without_the_forward_before_it(context, monkeypatch):
    monkeypatch.setattr(conv_times, "allreduce_sum", lambda *_: LATE.work(0.001))
    conv_times.report_backward(context, convolution())
    assert value_of(context, "backward_ms") == pytest.approx(2.0)
    assert value_of(context, "gradient_sum_ms") == pytest.approx(1.0)


def test_a_forward_of_a_convolution_ends_when_it_is_done():
    conv_times.TiledConvolution(Module(), None, None, None, PLACE).forward()
    assert LATE.clock() == pytest.approx(0.010)


def test_computing_is_timed_without_what_was_queued_before(context, monkeypatch):
    LATE.work(0.5)
    way = SimpleNamespace(compute=lambda *_: LATE.work(0.003))
    module = SimpleNamespace(operator=lambda: None)
    gather = SimpleNamespace(start=lambda tile: LATE.work(0.2), finish=lambda flight: ())
    given = SimpleNamespace(module=module, execution=way, tile=None, gather=gather, device=PLACE)
    taken = taken_by(monkeypatch, conv_times)
    assert conv_times._measure_compute_ms(context, given) == pytest.approx(3.0)
    assert taken == pytest.approx([0.003] * conv_times.ROUNDS)


class Exchange:
    """The stand-in for an exchange: 1 ms to pack, 4 ms to travel, 2 ms to unpack, all queued."""

    def __init__(self, transport="cuda", memory_path=("pinned", "asked for"), bytes_=4096):
        self.transport = transport
        self.memory_path = memory_path
        self.tried_ms = {}
        self.outgoing = [Piece(0, Box((0, 1), (0, bytes_)))]
        self.start = lambda: LATE.work(0.001)
        self.wait = lambda: LATE.work(0.004)
        self.unpack = lambda: LATE.work(0.002)
        self.release = lambda: None

    def piece_bytes(self, piece):
        return piece.box.width


def test_an_exchange_is_timed_until_it_is_done_and_without_what_was_queued(context, monkeypatch):
    monkeypatch.setattr(report, "median", max)
    LATE.work(0.5)
    phases = report.measure_phases(context, Exchange(), PLACE)
    assert phases.total == pytest.approx(7.0)
    # A wait for all streams may never end while a receive of NCCL is posted.
    assert LATE.device_wide == 0


def test_a_rank_of_a_gpu_that_sends_nothing_gives_no_time_of_its_calls(context):
    report.report_phases(context, report.ExchangePhases(1.0, 2.0, 3.0), [], PLACE)
    assert value_of(context, "pack_ms") == 0.0
    assert not said(context, "metric", name="wait_ms")


def taken_by(monkeypatch, module):
    """A list of the times of which a module takes the median; it gets the first of them."""
    taken = []

    def median(times):
        taken.extend(times)
        return taken[0]

    monkeypatch.setattr(module, "median", median)
    return taken


def test_copies_are_timed_without_what_was_queued_before(monkeypatch):
    LATE.work(0.5)
    taken = taken_by(monkeypatch, report)
    source = torch.ones(4, device="late")
    report._measure_copies([(torch.zeros(4, device="late"), source)])
    assert taken == pytest.approx([0.0] * report.COPY_ROUNDS)
    assert LATE.clock() == pytest.approx(0.5)


@pytest.fixture
def pings(monkeypatch):
    """The ping-pongs that were asked for; none is made."""
    asked = []

    def on_device(peer, count, trips, *, device, path):
        asked.append((path, device, count))
        return 0.001

    def on_host(peer, count, trips):
        asked.append(("host", torch.device("cpu"), count))
        return 0.001

    monkeypatch.setattr(report, "one_way_device_seconds", on_device)
    monkeypatch.setattr(report, "one_way_seconds", on_host)
    return asked


@pytest.mark.parametrize(
    ("transport", "memory_path", "path", "words"),
    [
        ("cuda", ("pinned", "MPI says no"), "pinned", "by way of pinned memory"),
        ("cuda", ("device pointers", "MPI says yes"), "pointers", "given device pointers"),
        ("nccl", None, "nccl", "by NCCL"),
        ("packed", None, "host", "one-way ping-pong of 4096 B, rank 0 to 0"),
    ],
)
def test_the_limit_is_a_ping_pong_over_the_same_path(
    context, pings, monkeypatch, transport, memory_path, path, words
):
    entered = []

    class Opened:
        def __enter__(self):
            entered.append(path)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(report, "open_path", lambda comm, device, path: Opened())
    place = torch.device("cpu") if path == "host" else PLACE
    pixels = [torch.zeros(4096, dtype=torch.uint8, device=place)]
    exchange = Exchange(transport, memory_path)
    report.report_limits(context, exchange, pixels, pixels, 7.0, "exchange_ms", place)
    assert pings == [(path, place, 4096)]
    assert entered == ([] if path == "host" else [path])
    (limit,) = said(context, "metric", name="exchange_ms")
    assert words in limit["measured_by"]
    assert limit["value"] == pytest.approx(1.0, abs=0.2 if path == "host" else 1e-6)


def test_the_memory_that_mpi_gets_is_a_choice_of_the_case(context):
    report.report_choice(context, Exchange(memory_path=("device pointers", "Open MPI says so")))
    assert choice_of(context, "gpu_memory") == ("device pointers", "Open MPI says so")


def test_the_host_has_no_such_choice(context):
    report.report_choice(context, Exchange("packed", None))
    assert not said(context, "choice", name="gpu_memory")


def image(values):
    return SimpleNamespace(batch=1, channels=1, height=1, width=values)


CASE = SimpleNamespace(image=image(1 << 20), gradient=image(1 << 20), template=torch.zeros(1))


@pytest.fixture
def sequential(monkeypatch):
    """Makes one process take 5 ms, or raise what is put here."""
    raised = []

    def seconds(*_):
        if raised:
            raise raised[0]
        return 0.005

    monkeypatch.setattr(conv_times, "_time_sequential", seconds)
    monkeypatch.setattr(conv_times, "free_bytes", lambda place: 1 << 30)
    return raised


def test_one_process_convolves_where_there_is_memory(context, sequential):
    conv_times.report_speedup(context, convolution(), CASE, 2.0)
    assert value_of(context, "sequential_ms") == pytest.approx(5.0)
    assert value_of(context, "speedup") == pytest.approx(2.5)


def test_one_process_does_not_convolve_what_the_gpu_has_no_memory_for(
    context, sequential, monkeypatch
):
    monkeypatch.setattr(conv_times, "free_bytes", lambda place: (1 << 20) * (place == PLACE))
    conv_times.report_speedup(context, convolution(), CASE, 2.0)
    assert not said(context, "metric")
    (log,) = said(context, "log")
    assert log["message"] == "sequential_ms: 16 MiB are needed, 1 are free"


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
def test_a_lack_of_memory_for_one_process_does_not_end_the_case(context, sequential, error):
    sequential.append(error)
    conv_times.report_speedup(context, convolution(), CASE, 2.0)
    assert not said(context, "metric")
    (log,) = said(context, "log")
    assert log["message"] == "sequential_ms: there was no memory, 1024 MiB were free"


def test_another_error_of_one_process_does(context, sequential):
    sequential.append(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal"):
        conv_times.report_speedup(context, convolution(), CASE, 2.0)
