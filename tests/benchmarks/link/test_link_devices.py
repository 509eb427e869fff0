"""Ping-pong between GPUs: its parameters, and the path of messages."""

from types import SimpleNamespace

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.link.device_messages import choose_path
from spbench_workers.benchmarks.link.messages import open_messages
from support.recording_context import find_events, make_context
from support.typed_params import TypedParams

ENTRY = BENCHMARKS["link.pingpong"]


def test_default_sizes_depend_on_the_device():
    host = ENTRY.complete({})
    gpu = ENTRY.complete({"device": "cuda"})
    assert (host["device"], host["path"]) == ("cpu", None)
    assert host["sizes"] == [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20]
    assert gpu["path"] == "auto"
    assert gpu["sizes"][-1] >= 64 << 20
    assert ENTRY.complete({"device": "cuda", "sizes": [8]})["sizes"] == [8]
    assert ENTRY.complete(gpu) == gpu
    assert ENTRY.complete(host) == host


def test_reports_the_host_as_device():
    context = make_context("link.pingpong", sizes=[8])
    with open_messages(context):
        pass
    (event,) = find_events(context, "device")
    assert (event["device"], event["reason"]) == ("cpu", "asked for")


def test_rejects_a_path_on_the_host(messages):
    with pytest.raises(ExceptionGroup) as caught:
        ENTRY.complete({"path": "pinned"})
    (error,) = caught.value.exceptions
    assert error.param == "path"
    messages.check(str(error))


class Case(TypedParams):
    """A case on rank 0 of two, with given answers about MPI's support of GPU memory."""

    def __init__(self, path, support):
        self.params = {"path": path}
        self.world = SimpleNamespace(rank=0, comm=SimpleNamespace(allgather=lambda _: support))
        self.choices = []

    def choice(self, *fields):
        self.choices.append(fields)


@pytest.mark.parametrize(
    ("requested", "support", "path", "reason"),
    [
        ("auto", [(True, "it says yes")] * 2, "pointers", "it says yes"),
        ("auto", [(True, "it says yes"), (False, "it says no")], "pinned", "it says no on rank 1"),
        ("pinned", [(True, "it says yes")] * 2, "pinned", "asked for"),
        ("pointers", [(True, "it says yes")] * 2, "pointers", "asked for"),
        ("nccl", [(False, "it says no")] * 2, "nccl", "asked for"),
    ],
)
def test_chooses_a_path_that_all_ranks_support(requested, support, path, reason):
    case = Case(requested, support)
    assert choose_path(case) == path
    assert case.choices == [("path", path, reason)]


def test_rejects_pointers_without_support_of_mpi(messages):
    case = Case("pointers", [(False, "it says no")] * 2)
    with messages.raises(CannotRunError):
        choose_path(case)
    assert not case.choices
