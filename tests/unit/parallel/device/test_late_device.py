"""The stand-in for a GPU: other tests rely on its limits."""

import pytest
import torch
from torch.nn import functional

from spbench_parallel.device.streams import get_streams
from standins.late_device import LateTensor, install, unwrap

pytestmark = pytest.mark.usefixtures("late")

LATE = install()


def test_results_exist_after_a_wait():
    doubled = torch.ones(3, device="late") * 2
    assert doubled.device.type == "late"
    assert unwrap(doubled).isnan().all()
    LATE.streams.synchronize()
    assert unwrap(doubled).tolist() == [2, 2, 2]


def test_blocking_copies_and_reads_wait():
    ones = torch.ones(3).to("late")
    assert (ones + 1).cpu().tolist() == [2, 2, 2]
    assert float((ones + 2).sum()) == 9
    assert torch.equal(ones, ones + 0)


def test_numbers_of_python_become_tensors():
    assert (torch.tensor([1, 2], device="late") + 1).cpu().tolist() == [2, 3]


def test_a_non_blocking_copy_happens_later():
    host = torch.zeros(3)
    host.copy_(torch.ones(3, device="late") * 5, non_blocking=True)
    assert host.tolist() == [0, 0, 0]
    LATE.streams.synchronize()
    assert host.tolist() == [5, 5, 5]


def test_a_blocking_copy_reads_the_current_host_values():
    host = torch.ones(2)
    blocking = torch.empty(2, device="late")
    non_blocking = torch.empty(2, device="late")
    blocking.copy_(host)
    assert LATE.waits == 1
    non_blocking.copy_(host, non_blocking=True)
    assert LATE.waits == 1
    host.fill_(7)
    assert blocking.cpu().tolist() == [1, 1]
    assert non_blocking.cpu().tolist() == [7, 7]


def test_empty_like_allocates_on_the_host():
    memory = torch.empty_like(torch.ones(3, device="late"), device="cpu")
    assert (type(memory), memory.device.type, memory.shape) == (torch.Tensor, "cpu", (3,))


def test_unordered_streams_read_missing_results():
    source = torch.ones(2, device="late") * 3
    target = torch.zeros(2)
    streams = get_streams(source.device)
    event = streams.event()
    with streams.use_copy_stream():
        target.copy_(source, non_blocking=True)
        event.record()
    assert not event.query()
    event.synchronize()
    assert target.isnan().all()


def test_ordered_streams_read_results():
    source = torch.ones(2, device="late") * 3
    target = torch.zeros(2)
    LATE.streams.fork_copy_stream()
    with LATE.streams.use_copy_stream():
        target.copy_(source, non_blocking=True)
    LATE.streams.join_copy_stream()
    LATE.streams.synchronize()
    assert target.tolist() == [3, 3]


def test_gradients_equal_those_of_the_host():
    pixels = torch.randn(1, 2, 6, 6)
    weight = torch.randn(3, 2, 3, 3)
    gradients = []
    for device in ("cpu", "late"):
        tensors = [tensor.clone().to(device).requires_grad_() for tensor in (pixels, weight)]
        functional.conv2d(tensors[0], tensors[1]).square().sum().backward()
        gradients.append([tensor.grad.cpu() for tensor in tensors])
    torch.testing.assert_close(*gradients)


def test_running_statistics_change_once():
    pixels = torch.randn(2, 3, 4, 4)
    norms = [torch.nn.BatchNorm2d(3).to(device) for device in ("cpu", "late")]
    for norm in norms:
        norm(pixels.to(norm.weight.device))
    LATE.streams.synchronize()
    torch.testing.assert_close(norms[1].running_mean.cpu(), norms[0].running_mean)


def test_events_time_the_work_and_not_the_call():
    first, last = (LATE.streams.event(timing=True) for _ in range(2))
    first.record()
    LATE.work(0.02)
    last.record()
    assert LATE.clock() == 0.0
    with pytest.raises(AssertionError, match="there was no wait"):
        last.seconds_since(first)
    last.synchronize()
    assert last.seconds_since(first) == pytest.approx(0.02)
    assert LATE.clock() == pytest.approx(0.02)


def test_a_wait_for_the_whole_device_is_counted():
    torch.get_device_module("late").synchronize()
    assert LATE.device_wide == 1


def make_on_host(count=3):
    return torch.arange(float(count))


def make_on_device(count=3):
    return make_on_host(count).to("late")


@pytest.mark.parametrize(
    "operation",
    [
        lambda: make_on_device() + make_on_host(),
        lambda: make_on_host() * make_on_device(),
        lambda: make_on_device().add_(make_on_host()),
        lambda: make_on_host().add_(make_on_device()),
        lambda: torch.tensor(1.0).add_(make_on_device().sum()),
        lambda: torch.add(make_on_device(), make_on_device(), out=make_on_host()),
        lambda: torch.cat([make_on_device(), make_on_host()]),
        lambda: torch.where(make_on_host() > 1, make_on_device(), make_on_device()),
        lambda: make_on_device().masked_fill(make_on_host() > 1, 0.0),
        lambda: make_on_device().index_select(0, torch.tensor([0])),
        lambda: make_on_host()[torch.tensor([0], device="late")],
        lambda: make_on_device().index_put_((torch.tensor([0, 1]),), make_on_host(2)),
        lambda: functional.conv1d(make_on_device()[None], make_on_host()[None, None]),
    ],
    ids=[
        "device + host",
        "host * device",
        "device.add_(host)",
        "host.add_(device)",
        "number on host.add_(device)",
        "add with out on host",
        "cat",
        "where with condition on host",
        "masked_fill with mask on host",
        "index_select with index on host",
        "host[index on device]",
        "index_put_ with values on host",
        "conv1d with weight on host",
    ],
)
def test_an_operation_on_tensors_of_host_and_device_raises_an_error(operation):
    with pytest.raises(RuntimeError, match=r"same device, .* cpu and late:0!"):
        operation()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda: make_on_host().copy_(make_on_device() + 1), [1, 2, 3]),
        (lambda: make_on_device().copy_(make_on_host() + 1), [1, 2, 3]),
        (lambda: make_on_device() * torch.tensor(2.0), [0, 2, 4]),
        (lambda: torch.tensor(2.0) * make_on_device(), [0, 2, 4]),
        (lambda: make_on_device().mul_(torch.tensor(2.0)), [0, 2, 4]),
        (lambda: make_on_device().masked_fill(make_on_device() > 1, torch.tensor(7.0)), [0, 1, 7]),
        (lambda: make_on_device()[torch.tensor([2, 0])], [2, 0]),
        (lambda: make_on_device()[make_on_host() > 0], [1, 2]),
        (lambda: make_on_device().index_put_((torch.tensor([0]),), torch.tensor(7.0)), [7, 1, 2]),
        (
            lambda: make_on_device().index_put_((torch.tensor([0]),), make_on_device(1) + 7),
            [7, 1, 2],
        ),
    ],
    ids=[
        "copy to host",
        "copy to device",
        "device * number on host",
        "number on host * device",
        "mul_ by number on host",
        "masked_fill with number on host",
        "device[index on host]",
        "device[mask on host]",
        "index_put_ with number on host",
        "index_put_ with index on host",
    ],
)
def test_copies_numbers_and_indices_may_be_on_the_host(operation, expected):
    assert operation().cpu().tolist() == expected


def copy_and_free(*, is_awaited):
    """Free a tensor that the copy stream still reads, and return its result."""
    source = make_on_device()
    target = torch.zeros(3)
    LATE.streams.fork_copy_stream()
    with LATE.streams.use_copy_stream():
        target.copy_(source, non_blocking=True)
    if is_awaited:
        LATE.streams.join_copy_stream()
    del source
    LATE.streams.synchronize()
    LATE.streams.synchronize_device()
    return target


def test_freed_memory_that_a_stream_reads_is_overwritten():
    assert copy_and_free(is_awaited=False).isnan().all()
    assert copy_and_free(is_awaited=True).tolist() == [0, 1, 2]


def double_and_free(*, is_awaited):
    """Free a tensor of the copy stream that the current stream still reads."""
    with LATE.streams.use_copy_stream():
        source = make_on_device()
    LATE.streams.join_copy_stream()
    result = source * 2
    if is_awaited:
        LATE.streams.fork_copy_stream()
    del source
    with LATE.streams.use_copy_stream():
        LATE.streams.synchronize()
    return result.cpu()


def test_memory_is_overwritten_by_its_stream():
    assert double_and_free(is_awaited=False).isnan().all()
    assert double_and_free(is_awaited=True).tolist() == [0, 2, 4]


def test_memory_is_not_freed_before_its_last_view():
    # Elsewhere a view refers to the tensor that it is a view of.
    with torch.inference_mode():
        pixels = make_on_device(6)
        row = pixels.view(2, 3)[1]
    elem = unwrap(row)
    del pixels
    LATE.streams.synchronize()
    assert row.cpu().tolist() == [3, 4, 5]
    del row
    LATE.streams.synchronize()
    assert elem.isnan().all()


def test_memory_is_not_freed_before_gradients_need_it():
    weight = make_on_device().requires_grad_()
    result = (weight * make_on_device()).square().sum()
    LATE.streams.synchronize()
    result.backward()
    assert weight.grad.cpu().tolist() == [0, 2, 16]


def test_memory_of_another_process_is_not_freed():
    memory = torch.full((3,), 5.0)
    LATE.allocator.exempt(memory.data_ptr(), memory.nbytes)
    opened = LateTensor(memory)
    assert (opened[1:] + 1).cpu().tolist() == [6, 6]
    del opened
    LATE.streams.synchronize()
    assert memory.tolist() == [5, 5, 5]
    LATE.allocator.end_exemption(memory.data_ptr())
    LateTensor(memory)
    LATE.streams.synchronize()
    assert memory.isnan().all()
