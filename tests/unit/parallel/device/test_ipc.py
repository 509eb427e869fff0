"""Calls to torch for CUDA IPC. No GPU is needed: torch's part is simulated."""

from inspect import signature
from unittest.mock import Mock, patch

import pytest
import torch
from torch.multiprocessing import reductions

from spbench_parallel.device.ipc import CudaIpc, find_storage_functions, get_device_ipc

DEVICE = torch.device("cuda", 2)


@pytest.fixture
def events():
    """Yield the events of CUDA in the order of creation; handles have their index."""
    created = []

    def create_event(**arguments):
        assert arguments in ({"interprocess": True}, {})
        created.append(Mock(ipc_handle=Mock(return_value=b"handle %d" % len(created))))
        return created[-1]

    def open_event(device, handle):
        assert (device, handle) == (DEVICE, b"theirs")
        return create_event()

    with (
        patch.object(
            torch.cuda, "Event", Mock(side_effect=create_event, from_ipc_handle=open_event)
        ),
        patch.object(torch.cuda, "current_stream", lambda device: f"the stream of {device}"),
    ):
        yield created


def test_a_process_has_two_events_for_all_that_it_shares(events):
    ipc = CudaIpc(DEVICE)
    assert ipc.event_handles() == ipc.event_handles() == (b"handle 0", b"handle 1")
    ipc.read_event.record()
    ipc.packed_event.record()
    packed, read = events
    for event in (packed, read):
        event.record.assert_called_once_with("the stream of cuda:2")
        event.ipc_handle.assert_called_once_with()


def test_an_event_of_another_process_is_opened_once(events):
    ipc = CudaIpc(DEVICE)
    ipc.open_event(b"theirs").wait()
    ipc.open_event(b"theirs").wait()
    (event,) = events[2:]
    assert [call.args for call in event.wait.call_args_list] == [("the stream of cuda:2",)] * 2


class OldStorage:
    """Storages of a torch with the old names of the functions that share them."""

    def _share_cuda_(self):
        return "shared by the old name"

    @staticmethod
    def _new_shared_cuda(*fields):
        return "opened by the old name", *fields


class NewStorage:
    """Storages of a torch with the new names."""

    def _share_device_(self):
        return "shared by the new name"

    @staticmethod
    def _new_shared_device(*fields):
        return "opened by the new name", *fields


class BothStorage(OldStorage, NewStorage):
    """Storages of a torch that uses the new names for devices other than CUDA."""


def test_opens_memory_of_another_gpu_without_an_event(events):
    """The sender asks for an event; torch would open it and never destroy it."""
    handle = (0, b"memory", 512, 0, b"users", 1, b"event", True)
    storage = torch.UntypedStorage(512)
    share = Mock(return_value=handle)
    open_shared = Mock(return_value=storage)
    with (
        patch(
            "spbench_parallel.device.ipc.find_storage_functions", return_value=(share, open_shared)
        ),
        patch.object(torch, "empty", lambda count, **_: torch.zeros(count, dtype=torch.uint8)),
    ):
        ipc = CudaIpc(DEVICE)
        memory = ipc.open_memory(ipc.share(torch.zeros(512, dtype=torch.uint8)))
    open_shared.assert_called_once_with(2, b"memory", 512, 0, b"users", 1, b"event", False)
    assert open_shared.call_args.args[-1] is False  # torch rejects 0
    assert memory.untyped_storage().data_ptr() == storage.data_ptr()
    assert (memory.dtype, memory.numel()) == (torch.uint8, 512)


@pytest.mark.parametrize(
    ("storages", "name"), [(OldStorage, "old"), (NewStorage, "new"), (BothStorage, "old")]
)
def test_takes_functions_of_torch_by_old_names_then_by_new_ones(storages, name):
    share, open_shared = find_storage_functions(storages)
    assert share(storages()) == f"shared by the {name} name"
    assert open_shared(1, False) == (f"opened by the {name} name", 1, False)


def test_rejects_a_torch_without_known_functions():
    with pytest.raises(RuntimeError, match="has no known functions for CUDA IPC"):
        find_storage_functions(object)


def test_the_installed_torch_has_one_pair_of_functions():
    """Their names are private to torch: a new version may have others."""
    share, open_shared = find_storage_functions(torch.UntypedStorage)
    assert callable(share)
    assert callable(open_shared)


def test_the_last_field_of_a_handle_asks_for_an_event():
    """The fields of torch's handles are those that its own reader of them takes."""
    names = ("rebuild_cuda_tensor", "rebuild_device_tensor")
    (read, *_) = [getattr(reductions, name) for name in names if hasattr(reductions, name)]
    assert list(signature(read).parameters)[-2:] == ["event_handle", "event_sync_required"]


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built with CUDA")
def test_a_torch_without_cuda_says_so():
    with pytest.raises(RuntimeError, match="Event"):
        get_device_ipc(DEVICE)
