"""Exchanges pieces over every transport on 4 ranks, and writes the problems.

    mpirun -n 4 python -m mpi4py exchange_all.py CASES.json RESULTS.json

A case is ``{"check", "ranks", ...}``: the name of a check, the ranks of the world that run it in
the order of their numbers in the communicator, and its arguments. A result has a text per rank,
which is empty if the check found no problem.

No GPU takes part:

- ``cuda`` uses tensors of the host, and those of a stand-in. The streams of the stand-in work only
  when there is a wait, so that a missing wait leaves NaN.
- ``cuda-ipc`` uses tensors of the stand-in.
- ``nccl`` uses tensors of the host, and gloo instead of NCCL.

So the checks cover packing, sending, receiving and unpacking of pieces, but no calls of CUDA.
"""

import json
import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from mpi4py import MPI

from spbench_core.layout.partition import Partition, make_halo_transfers
from spbench_core.layout.tiles import Box, Grid, parse_pair
from spbench_parallel.device import ipc
from spbench_parallel.device.formats import TORCH_DTYPES
from spbench_parallel.device.mpi_memory import OVERRIDE_VARIABLE, detect_cuda_awareness
from spbench_parallel.groups import DisagreementError, sleep_at_barrier
from spbench_parallel.p2p import torch_group
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.spatial.exchange import Exchange, view_box
from spbench_parallel.spatial.transports import (
    TransportError,
    TransportSpec,
    choose,
    nccl,
    slots,
    staged,
)
from spbench_parallel.spatial.transports.cuda_ipc import CudaIpcTransport
from spbench_parallel.spatial.transports.persistent import PackedTransport
from spbench_workers.benchmarks.halo.faults import inject_halo_fault
from standins.late_device import install
from standins.late_ipc import install_ipc

BATCH = 2
CHANNELS = 3
ROUNDS = 4
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
LATE = install()
install_ipc()
WITHOUT_A_GPU = {
    "cuda": partial(staged.StagedTransport, direct=False),
    "cuda-direct": partial(staged.StagedTransport, direct=True),
    "cuda-pinned": choose.TRANSPORTS["cuda-pinned"],
    "cuda-ipc": CudaIpcTransport,
    "nccl": nccl.NcclTransport,
}


@contextmanager
def enable_transport(transport):
    """Make a transport available on the host that is only available on a GPU."""
    if transport not in WITHOUT_A_GPU:
        yield
        return
    transports = dict(choose.TRANSPORTS) | {transport: WITHOUT_A_GPU[transport]}
    with (
        mock.patch.object(choose, "find_unsupported", return_value={}),
        mock.patch.object(choose, "TRANSPORTS", transports),
        # The values of the stand-in are in memory of the host, which MPI can use.
        mock.patch.object(
            staged, "mpi_buffer", lambda tensor: mpi_buffer(getattr(tensor, "elem", tensor))
        ),
    ):
        yield


def make_values(seed, box, dtype):
    """Return a box of random values, equal on all ranks; ``seed`` selects the image."""
    return view_box(make_image(seed, dtype), Box((0, 32), (0, 32)), box)


@cache
def make_image(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, CHANNELS, 32, 32, dtype=torch.float64, generator=generator).to(dtype)


def equal_bits(tensor, other):
    bits = BITS[tensor.element_size()]
    return torch.equal(tensor.contiguous().view(bits), other.contiguous().view(bits))


class CheckedExchange:
    """An exchange of halos, with the expected values."""

    def __init__(
        self,
        comm,
        transport,
        grid="2x2",
        size="20x24",
        halo=3,
        owners=None,
        dtype="fp32",
        channels_last=False,
        into=False,
        adjoint=False,
        one_way=False,
        seed=0,
        device="cpu",
    ):
        self.comm = comm
        self.adjoint = adjoint
        self.seed = seed
        self.device = torch.device(device)
        self.unpacks = into
        self.dtype = TORCH_DTYPES[dtype]
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        owned = Partition.from_grid(
            Grid(*parse_pair(grid)), *parse_pair(size), ranks=owners, size=comm.size
        )

        def up_and_left(rank, box):
            (_, bottom) = owned.tile(rank).rows
            (_, right) = owned.tile(rank).cols
            return Box((box.rows[0], bottom), (box.cols[0], right))

        table = make_halo_transfers(owned, halo)
        if one_way:
            table = replace(table, needed=tuple(map(up_and_left, range(comm.size), table.needed)))
        to_send = table.list_sent(comm.rank)
        expected = table.list_received(comm.rank)
        self.sent_pieces = expected if adjoint else to_send
        self.expected = to_send if adjoint else expected
        self.tile = owned.tile(comm.rank)
        self.needed = table.needed[comm.rank]
        # `source` has the sent pixels, `landing` the received ones: forward from the tile to all
        # needed pixels, backward in the opposite direction.
        self.origin = self.tile
        self.target = self.needed
        if adjoint:
            self.origin = self.needed
            self.target = self.tile
        self.source = self.create_tensor(self.origin)
        self.landing = self.create_tensor(self.target)
        self.into = [view_box(self.landing, self.target, piece.box) for piece in self.expected]
        with enable_transport(transport):
            self.exchange = Exchange(
                comm,
                table,
                self.list_views(),
                batch=BATCH,
                channels=CHANNELS,
                dtype=self.dtype,
                device=self.device,
                into=self.into if into else None,
                channels_last=channels_last,
                transport=transport,
                adjoint=adjoint,
            )

    def create_tensor(self, box):
        shape = (BATCH, CHANNELS, box.height, box.width)
        return torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=self.layout)

    def list_views(self):
        return [view_box(self.source, self.origin, piece.box) for piece in self.sent_pieces]

    def make_values(self, rank, round_, box):
        """Return values of one image for forward, and of one per rank for backward."""
        owner = 1 + rank if self.adjoint else 0
        return make_values(1000 * self.seed + 10 * round_ + owner, box, self.dtype)

    def prepare(self, round_):
        """Write new values, to a new tensor in every second round, and NaN to the target."""
        if round_ % 2:
            self.source = self.create_tensor(self.origin)
            self.exchange.bind(self.list_views())
        self.source.copy_(self.make_values(self.comm.rank, round_, self.origin))
        self.landing.fill_(float("nan"))
        self.comm.Barrier()  # all ranks have read the values of the last round
        self.exchange.poison()

    def hurry_copies(self, round_):
        """Run the copies before the work of the current stream in every second round."""
        if self.device.type == "late" and round_ % 2 == 0:
            with LATE.streams.use_copy_stream():
                LATE.streams.synchronize()

    def find_problem(self, round_, received):
        for piece, tensor in zip(self.expected, received, strict=True):
            values = tensor.cpu()
            expected = self.make_values(piece.peer, round_, piece.box)
            if values.shape != expected.shape:
                return f"round {round_}: from rank {piece.peer} shape {tuple(values.shape)}"
            if not equal_bits(values, expected):
                return f"round {round_}: wrong values from rank {piece.peer}"
        return ""

    def finish(self, round_):
        """Wait, and return the problem of the received pieces."""
        self.exchange.wait()
        self.hurry_copies(round_)
        # A comparison waits, so half of the rounds that unpack pieces have none before it.
        compares = not self.unpacks or round_ < ROUNDS // 2
        problem = self.find_problem(round_, self.exchange.received) if compares else ""
        self.exchange.unpack()
        self.hurry_copies(round_)
        self.exchange.release()
        return problem


def check_halos(comm, **arguments):
    trial = CheckedExchange(comm, **arguments)
    problems = []
    for round_ in range(ROUNDS):
        trial.prepare(round_)
        if round_ % comm.size == comm.rank:
            time.sleep(0.002)  # no rank may read before this one has sent
        trial.exchange.start()
        trial.hurry_copies(round_)
        problems.append(trial.finish(round_))
        if arguments.get("into"):
            problems.append(trial.find_problem(round_, trial.into))
            pixels = sum(piece.box.height * piece.box.width for piece in trial.expected)
            if int((~trial.landing.isnan()).sum()) != pixels * BATCH * CHANNELS:
                problems.append(f"round {round_}: values outside of the pieces changed")
    trial.exchange.free()
    return next(filter(None, problems), "")


def check_fault(comm, transport, fault, device):
    """A fault that changes pieces after `wait` is visible in the unpacked pieces."""
    trial = CheckedExchange(comm, transport, into=True, device=device)
    world = SimpleNamespace(rank=comm.rank)
    inject_halo_fault(SimpleNamespace(planted=fault.__eq__, world=world), trial.exchange)
    correct_rounds = []
    for round_ in range(ROUNDS):
        trial.prepare(round_)
        trial.exchange.start()
        trial.exchange.wait()
        trial.exchange.unpack()
        trial.hurry_copies(round_)
        trial.exchange.release()
        if not trial.find_problem(round_, trial.into):
            correct_rounds.append(round_)
    trial.exchange.free()
    # The pieces of the first round cannot be stale.
    expected = [0] if fault == "stale-halo" else []
    return "" if correct_rounds == expected else f"no fault in rounds {correct_rounds}"


def check_two_at_once(comm, transport, device="cpu"):
    trials = [CheckedExchange(comm, transport, seed=seed, device=device) for seed in (1, 2)]
    # Tags distinguish the two exchanges in any order. NCCL has no tags and needs the same order.
    is_reversed = transport != "nccl" and comm.rank % 2
    problems = []
    for round_ in range(ROUNDS):
        for trial in trials:
            trial.prepare(round_)
        for trial in reversed(trials) if is_reversed else trials:
            trial.exchange.start()
        problems += [trial.finish(round_) for trial in trials]
    for trial in trials:
        trial.exchange.free()
    return next(filter(None, problems), "")


def check_consecutive(comm, transport, quick=0, poisoned=False, freed=False, **arguments):
    """Consecutive exchanges overwrite or free no memory before it is read.

    Some ranks wait for their device at once, before the devices of the others have read memory.
    """
    trial = CheckedExchange(comm, transport, **arguments)
    copies = []
    for round_ in range(2 * ROUNDS):
        trial.source.copy_(trial.make_values(comm.rank, round_, trial.origin))
        trial.exchange.start()
        trial.exchange.wait()
        copies.append([piece.clone() for piece in trial.exchange.received])
        trial.exchange.release()
    if poisoned:
        comm.Barrier()
        trial.exchange.poison()
    if freed:
        trial.exchange.free()
    if (comm.rank + quick) % 2:
        LATE.streams.synchronize()
    time.sleep(0.02)
    problems = [trial.find_problem(round_, pieces) for round_, pieces in enumerate(copies)]
    if not freed:
        trial.exchange.free()
    return next(filter(None, problems), "")


def check_opened_during_exchange(comm, transport, device):
    """Opening a transport during an exchange of another one keeps its values."""
    trial = CheckedExchange(comm, transport, device=device)
    trial.prepare(0)
    trial.exchange.start()
    other = CheckedExchange(comm, transport, seed=1, device=device)
    problem = trial.finish(0)
    for finished in (trial, other):
        finished.exchange.free()
    return problem


def check_used_memory(comm, transport, device="cpu"):
    """Old content of the memory of flags does not count, even if cleared late."""

    def allocate_used(size, unit, comm):
        window = MPI.Win.Allocate_shared(size, unit, comm=comm)
        memory, _ = window.Shared_query(comm.rank)
        memory[:] = b"\x01" * size
        comm.Barrier()
        if comm.rank == 1:
            time.sleep(0.05)
        return window

    windows = SimpleNamespace(Win=SimpleNamespace(Allocate_shared=allocate_used))
    with mock.patch.object(slots, "MPI", windows):
        trial = CheckedExchange(comm, transport, device=device)
    trial.source.copy_(trial.make_values(comm.rank, 0, trial.origin))
    trial.exchange.start()
    problem = trial.finish(0)
    trial.exchange.free()
    return problem


def check_auto(comm):
    trial = CheckedExchange(comm, "auto")
    name = trial.exchange.transport
    tried = trial.exchange.tried_ms
    trial.prepare(0)
    trial.exchange.start()
    problem = trial.finish(0)
    trial.exchange.free()
    names = ("packed", "datatype", "shm")
    if tuple(tried) != names or name != min(tried, key=tried.get):
        return f"{name} of {tried}"
    if set(comm.allgather((name, tuple(tried.values())))) != {(name, tuple(tried.values()))}:
        return "the ranks do not agree"
    return problem


def check_auto_without_packed(comm):
    """If one rank cannot open a transport, auto chooses from the other ones."""

    def fail_on_rank_1(wiring):
        if wiring.comm.rank == 1:
            raise TransportError("no memory to share")
        return PackedTransport(wiring)

    original_transports = choose.TRANSPORTS
    choose.TRANSPORTS = {**original_transports, "packed": fail_on_rank_1}
    try:
        trial = CheckedExchange(comm, "auto")
    finally:
        choose.TRANSPORTS = original_transports
    trial.prepare(0)
    trial.exchange.start()
    problem = trial.finish(0)
    tried = tuple(trial.exchange.tried_ms)
    trial.exchange.free()
    return problem if tried == ("datatype", "shm") else f"tried {tried}"


def check_disagreement(comm):
    table = make_halo_transfers(Partition.from_grid(Grid(2, 2), 8, 8), 1)
    batch = 2 if comm.rank == 2 else 1
    try:
        Exchange(
            comm,
            table,
            [],
            batch=batch,
            channels=1,
            dtype=torch.float32,
            device=torch.device("cpu"),
            transport="packed",
        )
    except DisagreementError as error:
        return "" if "rank 2" in str(error) else str(error)
    return "no error"


def make_empty_spec(comm, device):
    return TransportSpec(comm, 1, [], [], [], [], None, torch.float32, torch.device(device))


def check_unfit(comm, transport, device, message):
    """A transport for another device is rejected before any memory is allocated."""
    try:
        choose.open_transport(transport, make_empty_spec(comm, device))
    except TransportError as error:
        return "" if message in str(error) else str(error)
    return "no error"


def check_gpus_of_ranks(comm, gpus, message):
    with mock.patch.object(torch_group, "_identify_gpu", return_value=gpus[comm.rank]):
        reason = torch_group.explain_missing_nccl(comm, torch.device("cuda"))
    return "" if reason == message else reason


def check_one_group(comm):
    """Transports over one communicator share a group until the last one closes."""
    before = len(torch_group._groups)
    wiring = make_empty_spec(comm, "cpu")
    transports = [nccl.NcclTransport(replace(wiring, tag=tag)) for tag in (1, 2)]
    counts = [len(torch_group._groups) - before]
    for transport in transports:
        transport.free()
        counts.append(len(torch_group._groups) - before)
    return "" if counts == [1, 1, 0] else f"groups: {counts}"


def check_rank_that_cannot_join(comm):
    def create_backend(*arguments):
        if comm.rank == 1:
            raise RuntimeError("no network\nand more")
        return original_create(*arguments)

    original_create = torch_group._create_backend
    timeout = timedelta(seconds=1)
    with mock.patch.multiple(torch_group, _create_backend=create_backend, _TIMEOUT=timeout):
        try:
            nccl.NcclTransport(make_empty_spec(comm, "cpu"))
        except TransportError as error:
            return "" if error.args[0].startswith("transport nccl: rank ") else str(error)
    return "no error"


def check_unshared(comm, message, **faults):
    """If one rank cannot share memory, or reads wrong memory, no rank does."""
    shares = ipc.get_device_ipc(torch.device("late"))

    def fail(*_):
        raise RuntimeError("CUDA error: no such thing\nand more")

    def share_other_memory(memory):
        return original_share(torch.zeros_like(memory))

    original_share = shares.share
    replacements = {"fails": fail, "other": share_other_memory}
    with ExitStack() as stack:
        for name, fault in faults.items() if comm.rank == 1 else ():
            stack.enter_context(mock.patch.object(shares, name, replacements[fault]))
        try:
            CheckedExchange(comm, "cuda-ipc", device="late")
        except TransportError as error:
            return "" if message in str(error) else str(error)
    return "no error"


def check_cuda_awareness(comm):
    """The detected CUDA awareness of MPI is equal on all ranks."""
    results = set(comm.allgather(detect_cuda_awareness()))
    if len(results) != 1 or {type(is_aware) for is_aware, _ in results} != {bool}:
        return f"{results}"
    return ""


def check_path(comm, settings, path, reason):
    """MPI gets device pointers only if the settings of all ranks allow it."""
    value = settings[comm.rank]
    with mock.patch.dict(os.environ, {OVERRIDE_VARIABLE: value} if value else {}):
        transport = staged.StagedTransport(make_empty_spec(comm, "cpu"))
        refusals = choose.find_unsupported(make_empty_spec(comm, "cuda"))
    memory_path = transport.memory_path
    offers_pinned = "cuda-pinned" not in refusals
    if memory_path != (path, reason) or offers_pinned != (path == "device pointers"):
        return f"{memory_path}, refusals: {refusals}"
    return ""


def check_both_paths(comm):
    """If MPI accepts device pointers, auto times both paths without a device sync."""
    transports = {name: choose.TRANSPORTS[name] for name in ("cuda", "cuda-pinned")}
    with (
        mock.patch.dict(os.environ, {OVERRIDE_VARIABLE: "1"}),
        mock.patch.object(choose, "TRANSPORTS", transports),
        enable_transport("cuda-pinned"),
    ):
        LATE.device_wide = 0
        trial = CheckedExchange(comm, "auto", device="late")
    trial.prepare(0)
    trial.exchange.start()
    problem = trial.finish(0)
    trial.exchange.free()
    memory_path = trial.exchange.memory_path
    expected = {
        "cuda": ("device pointers", f"{OVERRIDE_VARIABLE}=1"),
        "cuda-pinned": ("pinned", "asked for"),
    }[trial.exchange.transport]
    if tuple(trial.exchange.tried_ms) != tuple(transports) or memory_path != expected:
        return f"{trial.exchange.transport} by {memory_path}, tried {trial.exchange.tried_ms}"
    return problem or (f"{LATE.device_wide} waits for all streams" if LATE.device_wide else "")


CHECKS = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_halos,
        check_two_at_once,
        check_consecutive,
        check_opened_during_exchange,
        check_used_memory,
        check_auto,
        check_auto_without_packed,
        check_disagreement,
        check_unfit,
        check_gpus_of_ranks,
        check_one_group,
        check_rank_that_cannot_join,
        check_fault,
        check_unshared,
        check_cuda_awareness,
        check_path,
        check_both_paths,
    )
}


def main():
    torch.set_num_threads(1)
    # A torch with NCCL would read the addresses of the GPUs of the cases, which do not exist.
    vars(torch.distributed)["is_nccl_available"] = lambda: False
    world = MPI.COMM_WORLD
    results = []
    comms: dict[tuple[int, ...], MPI.Comm] = {tuple(range(world.size)): world}
    # This transport keeps the group of all ranks. It is never freed, and the program must end.
    nccl.NcclTransport(make_empty_spec(world, "cpu"))
    for case in json.loads(Path(sys.argv[1]).read_text()):
        check = CHECKS[case.pop("check")]
        ranks = tuple(case.pop("ranks"))
        if ranks not in comms:
            takes_part = world.rank in ranks
            key = ranks.index(world.rank) if takes_part else 0
            comms[ranks] = world.Split(0 if takes_part else MPI.UNDEFINED, key)
        problem = ""
        if world.rank in ranks:
            try:
                problem = check(comms[ranks], **case)
            except Exception as error:
                error.add_note(f"in {check.__name__} {case} on rank {world.rank}")
                raise
        sleep_at_barrier(world)  # ranks that take no part sleep
        results.append(world.gather(problem))
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
