"""Numbers of a GPU on their way over the host, with a device that does its work late.

A wait that is missing shows as NaN; memory that is used again too early, as another's numbers.
"""

import pytest
import torch

from spbench_core.layout.tiles import Box, Grid
from spbench_parallel.device import host_memory
from spbench_parallel.device.host_memory import (
    FETCH_BUFFERS,
    SEND_BUFFERS,
    HostMemory,
    copy_to_device,
    get_host_memory,
)
from spbench_parallel.pipeline.sync_batch_norm import SyncBatchNorm2d
from spbench_parallel.spatial.gradients import allreduce_sum, share_parameters
from spbench_parallel.spatial.norm import compute_moments
from spbench_parallel.spatial.tiling import Tiling
from standins.late_device import install
from standins.twin import Twin

pytestmark = pytest.mark.usefixtures("late")

LATE = install()
DEVICE = torch.device("late")


@pytest.fixture
def memory():
    return HostMemory(DEVICE)


def late(*values, dtype=torch.float32):
    """Values that the device has when it has done its work."""
    return torch.tensor(values, dtype=dtype).to(DEVICE) * 1


def test_what_is_fetched_is_there(memory):
    assert memory.fetch(late(1, 2)).tolist() == [1, 2]


def test_it_is_fetched_in_another_format(memory):
    found = memory.fetch(late(1, 2), torch.float16)
    assert (found.dtype, found.tolist()) == (torch.float16, [1, 2])


def test_it_may_lie_apart_or_be_nothing(memory):
    assert memory.fetch(late(1, 2, 3, 4)[::2]).tolist() == [1, 3]
    assert memory.fetch(torch.empty(0, 3, device=DEVICE)).shape == (0, 3)


def test_what_is_put_waits_for_nobody_and_comes_in_order(memory):
    target = late(0, 0)
    LATE.waits = 0
    values = torch.tensor([3.0, 4.0])
    memory.copy_to_gpu(values, target)
    doubled = target * 2
    values.fill_(9.0)
    assert LATE.waits == 0
    assert target.elem.isnan().all()
    assert doubled.cpu().tolist() == [6, 8]


def test_it_is_put_in_the_format_of_its_target(memory):
    target = late(0, 0, dtype=torch.bfloat16)
    memory.copy_to_gpu(torch.tensor([3.0, 4.0]), target)
    assert target.cpu().tolist() == [3, 4]


def test_what_was_fetched_goes_back_as_it_is(memory, monkeypatch):
    found = memory.fetch(late(1, 2))
    monkeypatch.setattr(memory, "_next_send", None)
    target = late(0, 0)
    memory.copy_to_gpu(found.mul_(5), target)
    assert target.cpu().tolist() == [5, 10]


def test_copies_under_way_keep_their_memory(memory):
    made = [memory.send(torch.full((4,), float(turn))) for turn in range(3 * SEND_BUFFERS)]
    assert [one.cpu()[0].item() for one in made] == list(range(3 * SEND_BUFFERS))


def test_memory_that_was_fetched_is_not_used_again_while_it_goes_back(memory):
    targets = []
    for turn in range(3 * FETCH_BUFFERS):
        target = late(float(turn))
        memory.copy_to_gpu(memory.fetch(target).add_(100), target)
        targets.append(target)
    assert [int(one.cpu()) for one in targets] == [100 + turn for turn in range(3 * FETCH_BUFFERS)]


def test_so_many_copies_may_be_under_way_before_the_host_waits(memory):
    LATE.waits = 0
    for _ in range(SEND_BUFFERS):
        memory.send(torch.zeros(1))
    assert LATE.waits == 0
    memory.send(torch.zeros(1))
    assert LATE.waits == 1


def test_memory_is_kept_and_grows(memory):
    places = [memory.fetch(late(*range(size))).data_ptr() for size in (8, 8, 4, 2)]
    assert places[2:] == places[:2]
    assert memory.fetch(late(*range(20))).tolist() == list(range(20))
    assert get_host_memory(DEVICE) is get_host_memory(torch.device("late"))


@pytest.mark.parametrize(("kind", "pinned"), [("cuda", True), ("late", False)])
def test_memory_of_a_gpu_of_nvidias_is_pinned(kind, pinned, monkeypatch):
    """By what torch is asked for: without a GPU it pins nothing."""
    asked = []
    right = torch.empty

    def empty(*shape, pin_memory=False, **more):
        asked.append(pin_memory)
        return right(*shape, **more)

    monkeypatch.setattr(host_memory, "get_streams", lambda _: LATE.streams)
    monkeypatch.setattr(torch, "empty", empty)
    memory = host_memory.HostMemory(torch.device(kind))
    asked.clear()
    # All pieces of a kind grow at once, not in the midst of later steps.
    for _ in range(3):
        memory.reserve((2, 3), torch.float32)
        memory.reserve((1 << 10,), torch.float64)
    assert asked == [pinned] * host_memory.FETCH_BUFFERS
    memory.reserve((1 << 15,), torch.float64)
    assert asked == [pinned] * 2 * host_memory.FETCH_BUFFERS


def test_on_the_host_nothing_is_copied():
    values = torch.ones(2)
    assert copy_to_device(values, torch.device("cpu")) is values
    assert copy_to_device(values, DEVICE).cpu().tolist() == [1, 1]


FORMATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_sums_over_ranks_are_those_of_the_host(dtype):
    values = torch.randn(50, generator=torch.Generator().manual_seed(1)).to(dtype)
    there = values.to(DEVICE) * 1
    for one in (values, there):
        for _ in range(3):
            allreduce_sum(Twin(), one)
            one.mul_(0.25)
    assert torch.equal(there.cpu(), values)


def test_gradients_travel_in_16_bits_where_they_are_to():
    found = []
    for device in ("cpu", "late"):
        weight = torch.linspace(0.1, 1.1, 9).to(device).requires_grad_()
        bias = torch.ones(1).to(device).requires_grad_()
        for _ in range(2):
            shared = share_parameters(Twin(), (weight, bias), torch.float16)
            ((shared[0] ** 3).sum() * shared[1]).sum().backward()
        found.append([weight.grad.cpu(), bias.grad.cpu()])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_moments_are_those_of_the_host(dtype):
    tiling = Tiling.of_grid(Twin(), Grid(1, 2), 4, 8)
    found = []
    for device in ("cpu", "late"):
        generator = torch.Generator().manual_seed(2)
        for _ in range(3):
            pixels = torch.randn(2, 3, 4, 5, generator=generator).to(dtype).to(device) * 1
            found.append(compute_moments(tiling, pixels, Box((0, 4), (0, 5))))
    for one, other in zip(found[:3], found[3:], strict=True):
        assert one.mean.dtype == other.mean.dtype == torch.promote_types(dtype, torch.float32)
        assert other.mean.device.type == other.variance.device.type == "late"
        assert torch.equal(one.mean, other.mean.cpu())
        assert torch.equal(one.variance, other.variance.cpu())
        assert torch.equal(one.unbiased_variance, other.unbiased_variance.cpu())


def test_a_sum_and_moments_wait_for_the_device_once():
    """When numbers are on the host, and not again when they are back."""
    tiling = Tiling.of_grid(Twin(), Grid(1, 2), 4, 8)
    values = late(1, 2)
    pixels = torch.ones(2, 3, 4, 4).to(DEVICE) * 1
    LATE.waits = 0
    allreduce_sum(Twin(), values)
    assert LATE.waits == 1
    compute_moments(tiling, pixels, Box((0, 4), (0, 4)))
    assert LATE.waits == 2


def test_batch_norm_over_members_waits_for_its_two_sums():
    """Mean and variance go over the ranks; the number of values stays on the device."""
    norm = SyncBatchNorm2d(3, comm=Twin()).to(DEVICE)
    images = torch.ones(2, 3, 4, 4).to(DEVICE) * 1
    LATE.waits = 0
    norm(images)
    assert LATE.waits == 2
