"""Numbers of a GPU on their way over the host, with a device that works late.

A missing wait shows as NaN. Memory that is reused too early shows the numbers of another tensor.
"""

import pytest
import torch

from spbench_core.layout.tiles import Box, Grid
from spbench_parallel.device import host_memory
from spbench_parallel.device.host_memory import (
    DOWNLOAD_BUFFERS,
    UPLOAD_BUFFERS,
    StagingBuffers,
    copy_to_device,
    get_staging_buffers,
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
    return StagingBuffers(DEVICE)


def make_late_tensor(*values, dtype=torch.float32):
    """Return values that the device has only after its work."""
    return torch.tensor(values, dtype=dtype).to(DEVICE) * 1


def test_downloads_values(memory):
    assert memory.download(make_late_tensor(1, 2)).tolist() == [1, 2]


def test_downloads_in_another_format(memory):
    downloaded = memory.download(make_late_tensor(1, 2), torch.float16)
    assert (downloaded.dtype, downloaded.tolist()) == (torch.float16, [1, 2])


def test_downloads_strided_and_empty_tensors(memory):
    assert memory.download(make_late_tensor(1, 2, 3, 4)[::2]).tolist() == [1, 3]
    assert memory.download(torch.empty(0, 3, device=DEVICE)).shape == (0, 3)


def test_copies_to_the_gpu_in_order_without_waiting(memory):
    target = make_late_tensor(0, 0)
    LATE.waits = 0
    values = torch.tensor([3.0, 4.0])
    memory.copy_to_gpu(values, target)
    doubled = target * 2
    values.fill_(9.0)
    assert LATE.waits == 0
    assert target.elem.isnan().all()
    assert doubled.cpu().tolist() == [6, 8]


def test_copies_in_the_format_of_the_target(memory):
    target = make_late_tensor(0, 0, dtype=torch.bfloat16)
    memory.copy_to_gpu(torch.tensor([3.0, 4.0]), target)
    assert target.cpu().tolist() == [3, 4]


def test_copies_downloaded_memory_back_without_a_buffer(memory, monkeypatch):
    downloaded = memory.download(make_late_tensor(1, 2))
    monkeypatch.setattr(memory, "_next_upload", None)
    target = make_late_tensor(0, 0)
    memory.copy_to_gpu(downloaded.mul_(5), target)
    assert target.cpu().tolist() == [5, 10]


def test_pending_copies_keep_their_memory(memory):
    copies = [memory.upload(torch.full((4,), float(turn))) for turn in range(3 * UPLOAD_BUFFERS)]
    assert [copy.cpu()[0].item() for copy in copies] == list(range(3 * UPLOAD_BUFFERS))


def test_does_not_reuse_downloaded_memory_while_it_is_copied(memory):
    targets = []
    for turn in range(3 * DOWNLOAD_BUFFERS):
        target = make_late_tensor(float(turn))
        memory.copy_to_gpu(memory.download(target).add_(100), target)
        targets.append(target)
    assert [int(target.cpu()) for target in targets] == [
        100 + turn for turn in range(3 * DOWNLOAD_BUFFERS)
    ]


def test_waits_only_if_all_send_buffers_are_pending(memory):
    LATE.waits = 0
    for _ in range(UPLOAD_BUFFERS):
        memory.upload(torch.zeros(1))
    assert LATE.waits == 0
    memory.upload(torch.zeros(1))
    assert LATE.waits == 1


def test_reuses_and_grows_memory(memory):
    addresses = [
        memory.download(make_late_tensor(*range(size))).data_ptr() for size in (8, 8, 4, 2)
    ]
    assert addresses[2:] == addresses[:2]
    assert memory.download(make_late_tensor(*range(20))).tolist() == list(range(20))
    assert get_staging_buffers(DEVICE) is get_staging_buffers(torch.device("late"))


@pytest.mark.parametrize(("kind", "pinned"), [("cuda", True), ("late", False)])
def test_memory_for_an_nvidia_gpu_is_pinned(kind, pinned, monkeypatch):
    """The arguments to torch are checked, because it pins nothing without a GPU."""
    pin_arguments = []
    allocate = torch.empty

    def empty(*shape, pin_memory=False, **kwargs):
        pin_arguments.append(pin_memory)
        return allocate(*shape, **kwargs)

    monkeypatch.setattr(host_memory, "get_streams", lambda _: LATE.streams)
    monkeypatch.setattr(torch, "empty", empty)
    memory = host_memory.StagingBuffers(torch.device(kind))
    pin_arguments.clear()
    # All pieces of a kind grow at once, and not during later steps.
    for _ in range(3):
        memory.reserve((2, 3), torch.float32)
        memory.reserve((1 << 10,), torch.float64)
    assert pin_arguments == [pinned] * host_memory.DOWNLOAD_BUFFERS
    memory.reserve((1 << 15,), torch.float64)
    assert pin_arguments == [pinned] * 2 * host_memory.DOWNLOAD_BUFFERS


def test_copies_nothing_on_the_host():
    values = torch.ones(2)
    assert copy_to_device(values, torch.device("cpu")) is values
    assert copy_to_device(values, DEVICE).cpu().tolist() == [1, 1]


FORMATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_sums_over_ranks_equal_those_of_the_host(dtype):
    values = torch.randn(50, generator=torch.Generator().manual_seed(1)).to(dtype)
    late_values = values.to(DEVICE) * 1
    for tensor in (values, late_values):
        for _ in range(3):
            allreduce_sum(Twin(), tensor)
            tensor.mul_(0.25)
    assert torch.equal(late_values.cpu(), values)


def test_gradients_travel_in_16_bits_on_request():
    results = []
    for device in ("cpu", "late"):
        weight = torch.linspace(0.1, 1.1, 9).to(device).requires_grad_()
        bias = torch.ones(1).to(device).requires_grad_()
        for _ in range(2):
            shared = share_parameters(Twin(), (weight, bias), torch.float16)
            ((shared[0] ** 3).sum() * shared[1]).sum().backward()
        results.append([weight.grad.cpu(), bias.grad.cpu()])
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_moments_equal_those_of_the_host(dtype):
    tiling = Tiling.of_grid(Twin(), Grid(1, 2), 4, 8)
    results = []
    for device in ("cpu", "late"):
        generator = torch.Generator().manual_seed(2)
        for _ in range(3):
            pixels = torch.randn(2, 3, 4, 5, generator=generator).to(dtype).to(device) * 1
            results.append(compute_moments(tiling, pixels, Box((0, 4), (0, 5))))
    for host, device_moments in zip(results[:3], results[3:], strict=True):
        assert (
            host.mean.dtype
            == device_moments.mean.dtype
            == torch.promote_types(dtype, torch.float32)
        )
        assert device_moments.mean.device.type == device_moments.variance.device.type == "late"
        assert torch.equal(host.mean, device_moments.mean.cpu())
        assert torch.equal(host.variance, device_moments.variance.cpu())
        assert torch.equal(host.unbiased_variance, device_moments.unbiased_variance.cpu())


def test_a_sum_and_moments_wait_for_the_device_once():
    """It waits when numbers are on the host, and not again when they are back."""
    tiling = Tiling.of_grid(Twin(), Grid(1, 2), 4, 8)
    values = make_late_tensor(1, 2)
    pixels = torch.ones(2, 3, 4, 4).to(DEVICE) * 1
    LATE.waits = 0
    allreduce_sum(Twin(), values)
    assert LATE.waits == 1
    compute_moments(tiling, pixels, Box((0, 4), (0, 4)))
    assert LATE.waits == 2


def test_batch_norm_over_members_waits_for_two_sums():
    """Mean and variance go over the ranks. The number of values stays on the device."""
    norm = SyncBatchNorm2d(3, comm=Twin()).to(DEVICE)
    images = torch.ones(2, 3, 4, 4).to(DEVICE) * 1
    LATE.waits = 0
    norm(images)
    assert LATE.waits == 2
