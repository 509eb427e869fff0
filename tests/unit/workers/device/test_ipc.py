"""What is asked of torch for CUDA IPC: no GPU is there, so that torch's own part is made up."""

from unittest.mock import Mock, patch

import pytest
import torch

from spbench_workers.device.ipc import CudaIpc, ipc_of

DEVICE = torch.device("cuda", 2)


@pytest.fixture
def events():
    """Events of CUDA, in the order in which they are made or opened; their handles tell which."""
    made = []

    def event(**arguments):
        assert arguments in ({"interprocess": True}, {})
        made.append(Mock(ipc_handle=Mock(return_value=b"handle %d" % len(made))))
        return made[-1]

    def opened(device, handle):
        assert (device, handle) == (DEVICE, b"theirs")
        return event()

    with (
        patch.object(torch.cuda, "Event", Mock(side_effect=event, from_ipc_handle=opened)),
        patch.object(torch.cuda, "current_stream", lambda device: f"the stream of {device}"),
    ):
        yield made


def test_a_process_has_two_events_for_all_that_it_shares(events):
    ipc = CudaIpc(DEVICE)
    assert ipc.event_handles() == ipc.event_handles() == (b"handle 0", b"handle 1")
    ipc.read.record()
    ipc.packed.record()
    packed, read = events
    for one in (packed, read):
        one.record.assert_called_once_with("the stream of cuda:2")
        one.ipc_handle.assert_called_once_with()


def test_an_event_of_another_process_is_opened_once(events):
    ipc = CudaIpc(DEVICE)
    ipc.opened_event(b"theirs").wait()
    ipc.opened_event(b"theirs").wait()
    (opened,) = events[2:]
    assert [call.args for call in opened.wait.call_args_list] == [("the stream of cuda:2",)] * 2


def test_memory_of_another_gpu_is_opened_under_the_own_one(events):
    ipc = CudaIpc(DEVICE)
    shared = Mock()
    shared.untyped_storage()._share_cuda_.return_value = (0, b"memory", 512, 0, b"users", 1, b"", 0)
    storage = torch.UntypedStorage(512)
    with (
        patch.object(torch.UntypedStorage, "_new_shared_cuda", return_value=storage) as opens,
        patch.object(torch, "empty", lambda count, **_: torch.zeros(count, dtype=torch.uint8)),
    ):
        memory = ipc.opened(ipc.share(shared))
    opens.assert_called_once_with(2, b"memory", 512, 0, b"users", 1, b"", 0)
    assert memory.untyped_storage().data_ptr() == storage.data_ptr()
    assert (memory.dtype, memory.numel()) == (torch.uint8, 512)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built with CUDA")
def test_a_torch_without_cuda_says_so():
    with pytest.raises(RuntimeError, match="Event"):
        ipc_of(DEVICE)
