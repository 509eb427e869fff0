"""The stand-in for a GPU, without which the tests that use it would show nothing."""

import pytest
import torch
from torch.nn import functional

from spbench_workers.device.streams import streams_of
from standins.late_device import elem_of, install

pytestmark = pytest.mark.usefixtures("late")

LATE = install()


def test_results_are_there_when_somebody_has_waited():
    doubled = torch.ones(3, device="late") * 2
    assert doubled.device.type == "late"
    assert elem_of(doubled).isnan().all()
    LATE.streams.finish()
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
    LATE.streams.finish()
    assert host.tolist() == [5, 5, 5]


def test_a_blocking_copy_takes_the_host_values_of_now():
    host = torch.ones(2)
    there, meanwhile = torch.empty(2, device="late"), torch.empty(2, device="late")
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
    streams = streams_of(source.device)
    event = streams.event()
    with streams.copying():
        target.copy_(source, non_blocking=True)
        event.record()
    assert not event.query()
    event.synchronize()
    assert target.isnan().all()


def test_streams_in_order_see_it():
    source = torch.ones(2, device="late") * 3
    target = torch.zeros(2)
    LATE.streams.follow()
    with LATE.streams.copying():
        target.copy_(source, non_blocking=True)
    LATE.streams.lead()
    LATE.streams.finish()
    assert target.tolist() == [3, 3]


def test_gradients_are_those_of_the_host():
    pixels, weight = torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)
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
    LATE.streams.finish()
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
