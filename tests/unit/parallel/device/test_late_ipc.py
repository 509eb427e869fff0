"""The stand-in for CUDA IPC: other tests rely on its limits."""

from contextlib import contextmanager

import pytest
import torch

from standins.late_device import install, unwrap
from standins.late_ipc import LateIpc

pytestmark = pytest.mark.usefixtures("late")

LARGE = (1 << 20) + 1


@contextmanager
def open_ipc(**limits):
    shares = LateIpc(**limits)
    yield shares
    shares.end()


@pytest.fixture
def ipc():
    with open_ipc() as shares:
        yield shares


@pytest.fixture
def limited_ipc():
    with open_ipc(max_open=2) as shares:
        yield shares


def new_memory(nbytes=512):
    return torch.zeros(nbytes, dtype=torch.uint8, device="late")


def test_small_pieces_share_a_mapping_until_all_are_closed(ipc):
    memory = [new_memory().fill_(value) for value in (1, 2)]
    install().streams.synchronize()
    opened = [ipc.open_memory(ipc.share(piece)) for piece in memory]
    assert [int(piece[0]) for piece in opened] == [1, 2]
    assert len(ipc.mappings) == 1
    opened.pop()
    assert len(ipc.mappings) == 1
    opened.pop()
    assert len(ipc.mappings) == 0


def test_fails_to_map_more_segments_than_the_limit(limited_ipc, messages):
    memory = [new_memory(LARGE) for _ in range(3)]
    handles = [limited_ipc.share(piece) for piece in memory]
    opened = [limited_ipc.open_memory(handle) for handle in handles[:2]]
    with messages.raises(RuntimeError):
        limited_ipc.open_memory(handles[2])
    opened.pop()
    limited_ipc.open_memory(handles[2])


def test_fails_to_open_more_events_than_the_limit(limited_ipc, messages):
    memory = new_memory()
    _, *fields, has_event = limited_ipc.share(memory)
    assert has_event is True
    limited_ipc._open_storage_memory(*fields, True)
    limited_ipc._open_storage_memory(*fields, True)
    with messages.raises(RuntimeError):
        limited_ipc._open_storage_memory(*fields, True)
    limited_ipc._open_storage_memory(*fields, False)


def test_handles_above_the_limit_have_no_event():
    with open_ipc(max_event_handles=1) as ipc:
        memory = new_memory()
        install().streams.synchronize()
        assert [ipc.share(memory)[-1] for _ in range(2)] == [True, False]
        del memory
        assert ipc.share(new_memory())[-1] is True


def test_freed_memory_is_overwritten_in_open_handles(ipc):
    memory = new_memory()
    opened = ipc.open_memory(ipc.share(memory))
    install().streams.synchronize()
    del memory
    assert unwrap(opened).tolist() == [0xFF] * 512
