"""Ping-pong between GPUs: its parameters, and over what messages go."""

from types import SimpleNamespace

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.link.device_messages import choose_path
from spbench_workers.benchmarks.link.messages import open_messages
from unit.recorded import context_of, said
from unit.typed_params import TypedParams

ENTRY = BENCHMARKS["link.pingpong"]


def test_the_host_stays_as_it_was_and_gpus_get_sizes_that_fill_their_links():
    host = ENTRY.complete({})
    gpu = ENTRY.complete({"device": "cuda"})
    assert (host["device"], host["path"]) == ("cpu", None)
    assert host["sizes"] == [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20]
    assert gpu["path"] == "auto"
    assert gpu["sizes"][-1] >= 64 << 20
    assert ENTRY.complete({"device": "cuda", "sizes": [8]})["sizes"] == [8]
    assert ENTRY.complete(gpu) == gpu
    assert ENTRY.complete(host) == host


def test_a_ping_pong_on_the_host_says_so():
    context = context_of("link.pingpong", sizes=[8])
    with open_messages(context):
        pass
    (told,) = said(context, "device")
    assert (told["device"], told["reason"]) == ("cpu", "asked for")


def test_a_path_on_the_host_is_refused():
    with pytest.raises(ExceptionGroup) as caught:
        ENTRY.complete({"path": "pinned"})
    (error,) = caught.value.exceptions
    assert error.param == "path"
    assert str(error) == "path does nothing on the host: it is for device cuda"


class Case(TypedParams):
    """A case on rank 0 of two, whose MPI libraries say whether they take memory of a GPU."""

    def __init__(self, path, takes):
        self.params = {"path": path}
        self.world = SimpleNamespace(rank=0, comm=SimpleNamespace(allgather=lambda _: takes))
        self.chosen = []

    def choice(self, *words):
        self.chosen.append(words)


@pytest.mark.parametrize(
    ("asked", "takes", "path", "reason"),
    [
        ("auto", [(True, "it says yes")] * 2, "pointers", "it says yes"),
        ("auto", [(True, "it says yes"), (False, "it says no")], "pinned", "it says no on rank 1"),
        ("pinned", [(True, "it says yes")] * 2, "pinned", "asked for"),
        ("pointers", [(True, "it says yes")] * 2, "pointers", "asked for"),
        ("nccl", [(False, "it says no")] * 2, "nccl", "asked for"),
    ],
)
def test_the_path_is_what_all_ranks_can_take_and_is_recorded(asked, takes, path, reason):
    case = Case(asked, takes)
    assert choose_path(case) == path
    assert case.chosen == [("path", path, reason)]


def test_pointers_are_not_given_to_an_mpi_that_does_not_take_them():
    case = Case("pointers", [(False, "it says no")] * 2)
    with pytest.raises(CannotRunError, match="path pointers: it says no; take path pinned or auto"):
        choose_path(case)
    assert not case.chosen
