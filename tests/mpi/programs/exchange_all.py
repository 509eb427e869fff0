"""Exchanges pieces over every transport, on 4 ranks, and writes what went wrong on each of them.

    mpirun -n 4 python -m mpi4py exchange_all.py CASES.json RESULTS.json

A case is ``{"check", "ranks", ...}``: a function of this program, the ranks of the world that run
it, in the order of their numbers in the case's communicator, and its arguments. A result is one
text a rank: empty where all was right.

There is no GPU here. ``cuda``, ``cuda-ipc`` and ``nccl`` run all the same: the first on tensors of
the host, and on those of a stand-in, whose streams do their work only when something waits for it,
so that a wait that is missing leaves NaN; the second on those of the stand-in; the third on the
host, with gloo in the place of NCCL. That shows that they pack, send, receive and unpack the right
pieces, in the right order; it shows nothing of CUDA.
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

from spbench_core.layout.partition import Partition, halo_transfers
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
def offered(transport):
    """Offers a transport on the host that the library offers on a GPU only."""
    if transport not in WITHOUT_A_GPU:
        yield
        return
    made = dict(choose.TRANSPORTS) | {transport: WITHOUT_A_GPU[transport]}
    with (
        mock.patch.object(choose, "find_refusals", return_value={}),
        mock.patch.object(choose, "TRANSPORTS", made),
        # The stand-in's values lie in memory of the host, which MPI can take.
        mock.patch.object(
            staged, "mpi_buffer", lambda tensor: mpi_buffer(getattr(tensor, "elem", tensor))
        ),
    ):
        yield


def image(seed, box, dtype):
    """A box of random values that all ranks know; ``seed`` says whose image, and which round."""
    return view_box(whole_image(seed, dtype), Box((0, 32), (0, 32)), box)


@cache
def whole_image(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, CHANNELS, 32, 32, dtype=torch.float64, generator=generator).to(dtype)


def same(one, other):
    bits = BITS[one.element_size()]
    return torch.equal(one.contiguous().view(bits), other.contiguous().view(bits))


class Trial:
    """One exchange of halos, with all that it takes to know what must come."""

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

        table = halo_transfers(owned, halo)
        if one_way:
            table = replace(table, needed=tuple(map(up_and_left, range(comm.size), table.needed)))
        sent = table.list_sent(comm.rank)
        expected = table.list_received(comm.rank)
        self.sent, self.expected = (expected, sent) if adjoint else (sent, expected)
        self.tile = owned.tile(comm.rank)
        self.needed = table.needed[comm.rank]
        # What is sent lies in `source`, what comes goes to `landing`: forward from the tile into
        # all that is needed, backward the other way round.
        self.origin = self.tile
        self.target = self.needed
        if adjoint:
            self.origin = self.needed
            self.target = self.tile
        self.source = self.new(self.origin)
        self.landing = self.new(self.target)
        self.into = [view_box(self.landing, self.target, piece.box) for piece in self.expected]
        with offered(transport):
            self.exchange = Exchange(
                comm,
                table,
                self.views(),
                batch=BATCH,
                channels=CHANNELS,
                dtype=self.dtype,
                device=self.device,
                into=self.into if into else None,
                channels_last=channels_last,
                transport=transport,
                adjoint=adjoint,
            )

    def new(self, box):
        shape = (BATCH, CHANNELS, box.height, box.width)
        return torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=self.layout)

    def views(self):
        return [view_box(self.source, self.origin, piece.box) for piece in self.sent]

    def values(self, rank, round_, box):
        """Forward all ranks have parts of one image; backward each has gradients of its own."""
        owner = 1 + rank if self.adjoint else 0
        return image(1000 * self.seed + 10 * round_ + owner, box, self.dtype)

    def prepare(self, round_):
        """Fresh data to send, from a new tensor in every second round; NaN where they arrive."""
        if round_ % 2:
            self.source = self.new(self.origin)
            self.exchange.bind(self.views())
        self.source.copy_(self.values(self.comm.rank, round_, self.origin))
        self.landing.fill_(float("nan"))
        self.comm.Barrier()  # All have read what the last round brought.
        self.exchange.poison()

    def hurry_copies(self, round_):
        """Let the copies come before what the current stream was asked for, where they may."""
        if self.device.type == "late" and round_ % 2 == 0:
            with LATE.streams.use_copy_stream():
                LATE.streams.synchronize()

    def problem(self, round_, arrived):
        for piece, there in zip(self.expected, arrived, strict=True):
            values = there.cpu()
            wanted = self.values(piece.peer, round_, piece.box)
            if values.shape != wanted.shape:
                return f"round {round_}: from rank {piece.peer} shape {tuple(values.shape)}"
            if not same(values, wanted):
                return f"round {round_}: wrong values from rank {piece.peer}"
        return ""

    def finish(self, round_):
        """Wait, and compare what came: as received, and where it was to go."""
        self.exchange.wait()
        self.hurry_copies(round_)
        # A look waits: where pieces go on to their targets, it is left out in half of the rounds.
        looks = not self.unpacks or round_ < ROUNDS // 2
        problem = self.problem(round_, self.exchange.received) if looks else ""
        self.exchange.unpack()
        self.hurry_copies(round_)
        self.exchange.release()
        return problem


def halos(comm, **arguments):
    trial = Trial(comm, **arguments)
    problems = []
    for round_ in range(ROUNDS):
        trial.prepare(round_)
        if round_ % comm.size == comm.rank:
            time.sleep(0.002)  # Nobody may read what this rank has not sent yet.
        trial.exchange.start()
        trial.hurry_copies(round_)
        problems.append(trial.finish(round_))
        if arguments.get("into"):
            problems.append(trial.problem(round_, trial.into))
            pixels = sum(piece.box.height * piece.box.width for piece in trial.expected)
            if int((~trial.landing.isnan()).sum()) != pixels * BATCH * CHANNELS:
                problems.append(f"round {round_}: values came to where none belong")
    trial.exchange.free()
    return next(filter(None, problems), "")


def planted(comm, transport, fault, device):
    """The harm of a fault to pieces after `wait` is there when they have been unpacked."""
    trial = Trial(comm, transport, into=True, device=device)
    world = SimpleNamespace(rank=comm.rank)
    inject_halo_fault(SimpleNamespace(planted=fault.__eq__, world=world), trial.exchange)
    unnoticed = []
    for round_ in range(ROUNDS):
        trial.prepare(round_)
        trial.exchange.start()
        trial.exchange.wait()
        trial.exchange.unpack()
        trial.hurry_copies(round_)
        trial.exchange.release()
        if not trial.problem(round_, trial.into):
            unnoticed.append(round_)
    trial.exchange.free()
    # The first round's pieces are not stale yet.
    wanted = [0] if fault == "stale-halo" else []
    return "" if unnoticed == wanted else f"in rounds {unnoticed} nothing is to be seen"


def two_at_once(comm, transport, device="cpu"):
    trials = [Trial(comm, transport, seed=seed, device=device) for seed in (1, 2)]
    # Tags tell the two apart, in whatever order they start; NCCL has none, and goes by the order.
    turned = transport != "nccl" and comm.rank % 2
    problems = []
    for round_ in range(ROUNDS):
        for trial in trials:
            trial.prepare(round_)
        for trial in reversed(trials) if turned else trials:
            trial.exchange.start()
        problems += [trial.finish(round_) for trial in trials]
    for trial in trials:
        trial.exchange.free()
    return next(filter(None, problems), "")


def in_a_row(comm, transport, quick=0, poisoned=False, freed=False, **arguments):
    """Exchanges without a look between them: nothing is written over, or gone, before it is read.

    Some ranks wait for their device at once. What the others' is to read, it has not read yet.
    """
    trial = Trial(comm, transport, **arguments)
    kept = []
    for round_ in range(2 * ROUNDS):
        trial.source.copy_(trial.values(comm.rank, round_, trial.origin))
        trial.exchange.start()
        trial.exchange.wait()
        kept.append([piece.clone() for piece in trial.exchange.received])
        trial.exchange.release()
    if poisoned:
        comm.Barrier()
        trial.exchange.poison()
    if freed:
        trial.exchange.free()
    if (comm.rank + quick) % 2:
        LATE.streams.synchronize()
    time.sleep(0.02)
    problems = [trial.problem(round_, pieces) for round_, pieces in enumerate(kept)]
    if not freed:
        trial.exchange.free()
    return next(filter(None, problems), "")


def opened_meanwhile(comm, transport, device):
    """A transport that is opened while another exchanges does not change what arrives."""
    trial = Trial(comm, transport, device=device)
    trial.prepare(0)
    trial.exchange.start()
    other = Trial(comm, transport, seed=1, device=device)
    problem = trial.finish(0)
    for opened in (trial, other):
        opened.exchange.free()
    return problem


def on_used_memory(comm, transport, device="cpu"):
    """What the memory of flags held before is no flag, however late a rank clears its own."""

    def used(size, unit, comm):
        window = MPI.Win.Allocate_shared(size, unit, comm=comm)
        memory, _ = window.Shared_query(comm.rank)
        memory[:] = b"\x01" * size
        comm.Barrier()
        if comm.rank == 1:
            time.sleep(0.05)
        return window

    windows = SimpleNamespace(Win=SimpleNamespace(Allocate_shared=used))
    with mock.patch.object(slots, "MPI", windows):
        trial = Trial(comm, transport, device=device)
    trial.source.copy_(trial.values(comm.rank, 0, trial.origin))
    trial.exchange.start()
    problem = trial.finish(0)
    trial.exchange.free()
    return problem


def auto(comm):
    trial = Trial(comm, "auto")
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


def auto_without(comm):
    """One rank cannot make one transport: none of them takes it, and the others serve."""

    def fails(wiring):
        if wiring.comm.rank == 1:
            raise TransportError("no memory to share")
        return PackedTransport(wiring)

    kept = choose.TRANSPORTS
    choose.TRANSPORTS = {**kept, "packed": fails}
    try:
        trial = Trial(comm, "auto")
    finally:
        choose.TRANSPORTS = kept
    trial.prepare(0)
    trial.exchange.start()
    problem = trial.finish(0)
    tried = tuple(trial.exchange.tried_ms)
    trial.exchange.free()
    return problem if tried == ("datatype", "shm") else f"tried {tried}"


def disagreement(comm):
    table = halo_transfers(Partition.from_grid(Grid(2, 2), 8, 8), 1)
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


def nothing_on(comm, device):
    return TransportSpec(comm, 1, [], [], [], [], None, torch.float32, torch.device(device))


def unfit(comm, transport, device, words):
    """A GPU is named, not used: what does not apply is refused before any memory is taken."""
    try:
        choose.open_transport(transport, nothing_on(comm, device))
    except TransportError as error:
        return "" if words in str(error) else str(error)
    return "no error"


def gpus_of_their_own(comm, gpus, words):
    with mock.patch.object(torch_group, "_identify_gpu", return_value=gpus[comm.rank]):
        reason = torch_group.nccl_refusal(comm, torch.device("cuda"))
    return "" if reason == words else reason


def one_group(comm):
    """Transports over one communicator share a group; it ends with the last of them."""
    before = len(torch_group._groups)
    wiring = nothing_on(comm, "cpu")
    transports = [nccl.NcclTransport(replace(wiring, tag=tag)) for tag in (1, 2)]
    counts = [len(torch_group._groups) - before]
    for transport in transports:
        transport.free()
        counts.append(len(torch_group._groups) - before)
    return "" if counts == [1, 1, 0] else f"groups: {counts}"


def a_rank_cannot_join(comm):
    def broken(*arguments):
        if comm.rank == 1:
            raise RuntimeError("no network\nand more")
        return made(*arguments)

    made = torch_group._create_backend
    short = timedelta(seconds=1)
    group = mock.patch.multiple(torch_group, _create_backend=broken, _TIMEOUT=short)
    with group:
        try:
            nccl.NcclTransport(nothing_on(comm, "cpu"))
        except TransportError as error:
            return "" if error.args[0].startswith("transport nccl: rank ") else str(error)
    return "no error"


def unshared(comm, words, **broken):
    """Where one rank cannot share memory, or reads another's, none uses the transport."""
    shares = ipc.get_device_ipc(torch.device("late"))

    def fails(*_):
        raise RuntimeError("CUDA error: no such thing\nand more")

    def other(memory):
        return shared(torch.zeros_like(memory))

    shared = shares.share
    ways = {"fails": fails, "other": other}
    with ExitStack() as stack:
        for name, way in broken.items() if comm.rank == 1 else ():
            stack.enter_context(mock.patch.object(shares, name, ways[way]))
        try:
            Trial(comm, "cuda-ipc", device="late")
        except TransportError as error:
            return "" if words in str(error) else str(error)
    return "no error"


def evidence(comm):
    """Evidence of MPI about itself: the same on all ranks, which have the same library."""
    answers = set(comm.allgather(detect_cuda_awareness()))
    if len(answers) != 1 or {type(takes) for takes, _ in answers} != {bool}:
        return f"{answers}"
    return ""


def path(comm, words, taken, why):
    """Each rank's word counts: MPI is given device pointers where all ranks' can take them."""
    value = words[comm.rank]
    with mock.patch.dict(os.environ, {OVERRIDE_VARIABLE: value} if value else {}):
        transport = staged.StagedTransport(nothing_on(comm, "cpu"))
        refused = choose.find_refusals(nothing_on(comm, "cuda"))
    found = transport.memory_path
    transport_of = "cuda-pinned" not in refused
    wrong = found != (taken, why) or transport_of != (taken == "device pointers")
    return f"{found}, refused: {refused}" if wrong else ""


def both_ways(comm):
    """Both ways are timed where MPI takes device pointers; nobody waits for all streams."""
    ways = {name: choose.TRANSPORTS[name] for name in ("cuda", "cuda-pinned")}
    with (
        mock.patch.dict(os.environ, {OVERRIDE_VARIABLE: "1"}),
        mock.patch.object(choose, "TRANSPORTS", ways),
        offered("cuda-pinned"),
    ):
        LATE.device_wide = 0
        trial = Trial(comm, "auto", device="late")
    trial.prepare(0)
    trial.exchange.start()
    problem = trial.finish(0)
    trial.exchange.free()
    found = trial.exchange.memory_path
    wanted = {
        "cuda": ("device pointers", f"{OVERRIDE_VARIABLE}=1"),
        "cuda-pinned": ("pinned", "asked for"),
    }[trial.exchange.transport]
    if tuple(trial.exchange.tried_ms) != tuple(ways) or found != wanted:
        return f"{trial.exchange.transport} by {found}, tried {trial.exchange.tried_ms}"
    return problem or (f"{LATE.device_wide} waits for all streams" if LATE.device_wide else "")


CHECKS = {
    check.__name__: check
    for check in (
        halos,
        two_at_once,
        in_a_row,
        opened_meanwhile,
        on_used_memory,
        auto,
        auto_without,
        disagreement,
        unfit,
        gpus_of_their_own,
        one_group,
        a_rank_cannot_join,
        planted,
        unshared,
        evidence,
        path,
        both_ways,
    )
}


def main():
    torch.set_num_threads(1)
    # A torch with NCCL asks for the addresses of GPUs, which are named here and do not exist.
    vars(torch.distributed)["is_nccl_available"] = lambda: False
    world = MPI.COMM_WORLD
    results = []
    comms: dict[tuple[int, ...], MPI.Comm] = {tuple(range(world.size)): world}
    # Keeps the group of all ranks. Never freed: the program must end all the same.
    nccl.NcclTransport(nothing_on(world, "cpu"))
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
        sleep_at_barrier(world)  # ranks without a part in it sleep
        results.append(world.gather(problem))
    if world.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(results))


main()
