"""The stand-in for a GPU, without which the tests that use it would show nothing."""

import pytest
import torch
from torch.nn import functional

from spbench_parallel.device.streams import get_streams
from standins.late_device import LateTensor, elem_of, install

pytestmark = pytest.mark.usefixtures("late")

LATE = install()


def test_results_are_there_when_somebody_has_waited():
    doubled = torch.ones(3, device="late") * 2
    assert doubled.device.type == "late"
    assert elem_of(doubled).isnan().all()
    LATE.streams.synchronize()
    assert elem_of(doubled).tolist() == [2, 2, 2]


def test_blocking_copies_and_reads_wait():
    ones = torch.ones(3).to("late")
    assert (ones + 1).cpu().tolist() == [2, 2, 2]
    assert float((ones + 2).sum()) == 9
    assert torch.equal(ones, ones + 0)


def test_numbers_of_python_become_tensors():
    assert (torch.tensor([1, 2], device="late") + 1).cpu().tolist() == [2, 3]


def test_a_copy_that_does_not_block_comes_later():
    host = torch.zeros(3)
    host.copy_(torch.ones(3, device="late") * 5, non_blocking=True)
    assert host.tolist() == [0, 0, 0]
    LATE.streams.synchronize()
    assert host.tolist() == [5, 5, 5]


def test_a_blocking_copy_takes_the_host_values_of_now():
    host = torch.ones(2)
    there = torch.empty(2, device="late")
    meanwhile = torch.empty(2, device="late")
    there.copy_(host)
    assert LATE.waits == 1
    meanwhile.copy_(host, non_blocking=True)
    assert LATE.waits == 1
    host.fill_(7)
    assert there.cpu().tolist() == [1, 1]
    assert meanwhile.cpu().tolist() == [7, 7]


def test_memory_of_the_host_is_made_like_that_of_the_device():
    made = torch.empty_like(torch.ones(3, device="late"), device="cpu")
    assert (type(made), made.device.type, made.shape) == (torch.Tensor, "cpu", (3,))


def test_streams_without_an_order_see_what_is_not_there_yet():
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


def test_streams_in_order_see_it():
    source = torch.ones(2, device="late") * 3
    target = torch.zeros(2)
    LATE.streams.fork_copy_stream()
    with LATE.streams.use_copy_stream():
        target.copy_(source, non_blocking=True)
    LATE.streams.join_copy_stream()
    LATE.streams.synchronize()
    assert target.tolist() == [3, 3]


def test_gradients_are_those_of_the_host():
    pixels = torch.randn(1, 2, 6, 6)
    weight = torch.randn(3, 2, 3, 3)
    found = []
    for device in ("cpu", "late"):
        given = [one.clone().to(device).requires_grad_() for one in (pixels, weight)]
        functional.conv2d(given[0], given[1]).square().sum().backward()
        found.append([one.grad.cpu() for one in given])
    torch.testing.assert_close(*found)


def test_running_statistics_change_once():
    pixels = torch.randn(2, 3, 4, 4)
    norms = [torch.nn.BatchNorm2d(3).to(device) for device in ("cpu", "late")]
    for norm in norms:
        norm(pixels.to(norm.weight.device))
    LATE.streams.synchronize()
    torch.testing.assert_close(norms[1].running_mean.cpu(), norms[0].running_mean)


def test_time_is_that_of_the_work_not_of_the_call():
    first, last = (LATE.streams.event(timing=True) for _ in range(2))
    first.record()
    LATE.work(0.02)
    last.record()
    assert LATE.clock() == 0.0
    with pytest.raises(AssertionError, match="nobody waited"):
        last.seconds_since(first)
    last.synchronize()
    assert last.seconds_since(first) == pytest.approx(0.02)
    assert LATE.clock() == pytest.approx(0.02)


def test_a_wait_for_the_whole_device_is_counted():
    torch.get_device_module("late").synchronize()
    assert LATE.device_wide == 1


def on_host(count=3):
    return torch.arange(float(count))


def on_device(count=3):
    return on_host(count).to("late")


@pytest.mark.parametrize(
    "operation",
    [
        lambda: on_device() + on_host(),
        lambda: on_host() * on_device(),
        lambda: on_device().add_(on_host()),
        lambda: on_host().add_(on_device()),
        lambda: torch.tensor(1.0).add_(on_device().sum()),
        lambda: torch.add(on_device(), on_device(), out=on_host()),
        lambda: torch.cat([on_device(), on_host()]),
        lambda: torch.where(on_host() > 1, on_device(), on_device()),
        lambda: on_device().masked_fill(on_host() > 1, 0.0),
        lambda: on_device().index_select(0, torch.tensor([0])),
        lambda: on_host()[torch.tensor([0], device="late")],
        lambda: on_device().index_put_((torch.tensor([0, 1]),), on_host(2)),
        lambda: functional.conv1d(on_device()[None], on_host()[None, None]),
    ],
)
def test_an_operation_on_tensors_of_host_and_device_raises_an_error(operation):
    with pytest.raises(RuntimeError, match=r"same device, .* cpu and late:0!"):
        operation()


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda: on_host().copy_(on_device() + 1), [1, 2, 3]),
        (lambda: on_device().copy_(on_host() + 1), [1, 2, 3]),
        (lambda: on_device() * torch.tensor(2.0), [0, 2, 4]),
        (lambda: torch.tensor(2.0) * on_device(), [0, 2, 4]),
        (lambda: on_device().mul_(torch.tensor(2.0)), [0, 2, 4]),
        (lambda: on_device().masked_fill(on_device() > 1, torch.tensor(7.0)), [0, 1, 7]),
        (lambda: on_device()[torch.tensor([2, 0])], [2, 0]),
        (lambda: on_device()[on_host() > 0], [1, 2]),
        (lambda: on_device().index_put_((torch.tensor([0]),), torch.tensor(7.0)), [7, 1, 2]),
        (lambda: on_device().index_put_((torch.tensor([0]),), on_device(1) + 7), [7, 1, 2]),
    ],
)
def test_copies_numbers_and_indices_may_be_of_the_host(operation, expected):
    assert operation().cpu().tolist() == expected


def copied_and_freed(*, is_awaited):
    """Return what the copy stream reads of a tensor that is freed meanwhile."""
    source = on_device()
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


def test_memory_that_another_stream_still_reads_is_overwritten_when_freed():
    assert copied_and_freed(is_awaited=False).isnan().all()
    assert copied_and_freed(is_awaited=True).tolist() == [0, 1, 2]


def doubled_and_freed(*, is_awaited):
    """Return what the current stream reads of the copy stream's tensor that is freed meanwhile."""
    with LATE.streams.use_copy_stream():
        source = on_device()
    LATE.streams.join_copy_stream()
    result = source * 2
    if is_awaited:
        LATE.streams.fork_copy_stream()
    del source
    with LATE.streams.use_copy_stream():
        LATE.streams.synchronize()
    return result.cpu()


def test_memory_is_overwritten_by_the_stream_that_it_was_allocated_on():
    assert doubled_and_freed(is_awaited=False).isnan().all()
    assert doubled_and_freed(is_awaited=True).tolist() == [0, 2, 4]


def test_memory_is_not_freed_before_its_last_view():
    # Elsewhere a view refers to the tensor that it is a view of.
    with torch.inference_mode():
        pixels = on_device(6)
        row = pixels.view(2, 3)[1]
    elem = elem_of(row)
    del pixels
    LATE.streams.synchronize()
    assert row.cpu().tolist() == [3, 4, 5]
    del row
    LATE.streams.synchronize()
    assert elem.isnan().all()


def test_memory_is_not_freed_before_gradients_need_it():
    weight = on_device().requires_grad_()
    result = (weight * on_device()).square().sum()
    LATE.streams.synchronize()
    result.backward()
    assert weight.grad.cpu().tolist() == [0, 2, 16]


def test_memory_of_another_process_is_not_freed_here():
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
