"""Reduces with every algorithm, format, operation and mode, and writes what went wrong.

    mpirun -n 6 python -m mpi4py reduce_all.py CASES.json RESULTS.json

A case is a number of ranks. A result has a list of sentences for each: its complaints, none where
all was right. What must come is
computed here from what all ranks give, in whole numbers that every format holds.
"""

from functools import partial
from itertools import product

import torch
from mpi4py import MPI

from mpi.programs.each_case import answer_each
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.allreduce.entry import OPS
from spbench_workers.benchmarks.allreduce.model.formulas import compute_costs
from spbench_workers.benchmarks.allreduce.sweep import RotatingReduction, WrongElement
from spbench_workers.collectives import plan
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.native import registered_operation
from spbench_workers.collectives.reduction import StagedReduction, open_collective, open_reduction
from standins.late_device import install

MODES = ("blocking", "persistent", "nonblocking")
COUNTS = (0, 1, 2, 3, 5, 13, 64, 1009)
FOLDS = {
    "sum": lambda all_: all_.sum(0),
    "prod": lambda all_: all_.prod(0),
    "max": lambda all_: all_.amax(0),
    "min": lambda all_: all_.amin(0),
}
comm = MPI.COMM_WORLD
ranks = comm.size
rank = comm.rank
problems = []


def given(giver, count):
    """Small whole numbers: their sums and products are exact in all formats."""
    return (torch.arange(count) * 7 + 3 * giver) % 3 + 1 - 2 * (giver % 2)


def complain(*words):
    problems.append(" ".join(map(str, (f"rank {rank}:", *words))))


def go(reduction, mode):
    if mode == "nonblocking":
        reduction.start()
        reduction.poll()
        reduction.wait()
    else:
        reduction.run()


def vectors(mine, gotten, dtype, at=None):
    """Source and poisoned result; in place they are one, with what is given at its place."""
    source = mine.to(dtype)
    result = torch.full((gotten,), 99, dtype=dtype)
    if at is None:
        return source, result
    whole = torch.full((max(gotten, len(mine)),), 99, dtype=dtype)
    whole[at : at + len(mine)] = source
    return whole, whole


def trial(algorithm, dtype="fp32", op="sum", mode="persistent", count=17, in_place=False, **more):
    """One allreduce, twice; returns what this rank sends."""
    mine = given(rank, count)
    format_ = FORMATS[dtype]
    wanted = FOLDS[op](torch.stack([given(giver, count) for giver in range(ranks)])).to(format_)
    source, result = vectors(mine, count, format_, 0 if in_place else None)
    reduction = open_reduction(comm, algorithm, source, result, op, mode=mode, **more)
    for _ in range(2):
        result.fill_(99)
        source.copy_(mine)
        go(reduction, mode)
        if not torch.equal(result, wanted):
            complain(algorithm, dtype, op, mode, count, in_place, more, result[:8], wanted[:8])
        if not in_place and not torch.equal(source, mine.to(format_)):
            complain(algorithm, dtype, op, mode, count, more, "changed its source")
    reduction.free()
    return reduction.traffic


def every_way(algorithm, modes=MODES):
    for dtype in FORMATS:
        trial(algorithm, dtype=dtype, mode=modes[0])
        trial(algorithm, dtype=dtype, op="max", mode=modes[-1], count=3, in_place=True)
    for op in OPS:
        trial(algorithm, op=op, mode=modes[0])
    for turn, (mode, in_place) in enumerate(product(modes, (False, True))):
        for count in COUNTS[turn % 2 :: 2]:
            trial(algorithm, mode=mode, in_place=in_place, count=count)


def traffic_is_the_formulas(algorithm, **more):
    """Counts of ranks where they make their messages are those of the formulas."""
    for count in COUNTS:
        traffic = trial(algorithm, count=count, **more)
        work = compute_costs(algorithm, ranks, count, **more)
        bytes_ = comm.allreduce(traffic.bytes, op=MPI.MAX)
        messages = comm.allreduce(traffic.messages, op=MPI.MAX)
        if (bytes_, messages) != (4 * work.elements, work.messages):
            complain(algorithm, count, more, f"sends {bytes_} B in {messages}, not {work}")
        if traffic.rounds > work.rounds:
            complain(algorithm, count, more, f"{traffic.rounds} rounds, not {work.rounds}")


def orders():
    order = [*range(1, ranks, 2), *range(0, ranks, 2)]
    for algorithm in able():
        trial(algorithm, order=order, count=7)
    for algorithm in ("binomial", "flat", "two_level", "chain"):
        rotated(algorithm, order)


def rotated(algorithm, order):
    source, result = vectors(given(rank, 11), 11, torch.float32)
    wanted = sum(given(giver, 11) for giver in range(ranks)).float()
    rotation = RotatingReduction(
        order,
        lambda turned: open_reduction(comm, algorithm, source, result, order=turned),
    )
    for turn in range(ranks + 1):
        result.fill_(99)
        rotation.run()
        if not torch.equal(result, wanted):
            complain("rotated", algorithm, turn, result)
    rotation.free()


def able():
    return [name for name in plan.ALGORITHMS if not plan.refusal(name, ranks)]


def options():
    for group in range(1, ranks + 1):
        traffic_is_the_formulas("two_level", group=group)
    for chunks in (1, 2, 5):
        traffic_is_the_formulas("chain", chunks=chunks)


def collectives():
    for case in product(
        ("allgather", "reduce_scatter", "broadcast", "alltoall"),
        MODES,
        (False, True),
        ("fp32", "bf16"),
        (0, 1, 5),
    ):
        collective(*case)


def collective(name, mode, in_place, dtype, part):
    whole = part * ranks
    format_ = FORMATS[dtype]
    given_count = whole if name in ("reduce_scatter", "alltoall") else part
    gotten = whole if name in ("allgather", "alltoall") else part
    all_ = torch.stack([given(giver, given_count) for giver in range(ranks)])
    blocks = all_[:, rank * part : (rank + 1) * part]
    wanted = {
        "allgather": all_.flatten,
        "reduce_scatter": lambda: blocks.sum(0),
        "broadcast": lambda: all_[0],
        "alltoall": blocks.flatten,
    }[name]().to(format_)
    at = (rank * part if name == "allgather" else 0) if in_place else None
    source, result = vectors(all_[rank], gotten, format_, at)
    reduction = open_collective(comm, name, source, result, mode=mode)
    go(reduction, mode)
    if not torch.equal(result[: len(wanted)], wanted):
        complain(name, mode, in_place, dtype, part, result, wanted)
    reduction.free()


def gloo():
    # One group for all: each further one holds on to it.
    source, result = vectors(given(rank, 3), 3, torch.float32)
    kept = open_reduction(comm, "gloo", source, result)
    for mode, in_place, count in product(("blocking", "nonblocking"), (False, True), (0, 1, 13)):
        trial("gloo", mode=mode, in_place=in_place, count=count)
    for dtype, op in product(("fp64", "bf16", "int32"), OPS):
        trial("gloo", dtype=dtype, op=op, mode="blocking")
    kept.free()


def refusals():
    vector = torch.ones(4)
    for words, algorithm, mode in (
        ("mode persistent is for MPI", "gloo", "persistent"),
        ("nccl needs a GPU for each rank, and rank 0 has none", "nccl", "blocking"),
        ("muji_8 is drawn for 8 ranks", "muji_8", "blocking"),
    ):
        try:
            open_reduction(comm, algorithm, vector, vector, mode=mode)
        except CannotRunError as error:
            if words not in str(error):
                complain(algorithm, error)
        else:
            complain(algorithm, mode, "was not refused")
    if registered_operation(torch.float32, "sum") or not registered_operation(
        torch.bfloat16, "sum"
    ):
        complain("says wrongly which operations are registered")


def by_way_of_the_host(mode, in_place):
    """The path of a GPU's vectors, on a device that runs late: copies there and back."""
    on_host = vectors(given(rank, 9), 9, torch.float32, 0 if in_place else None)
    source = on_host[0].to("late")
    result = source if in_place else on_host[1].to("late")
    reduction = StagedReduction(source, result, partial(open_reduction, comm, "ring", mode=mode))
    wanted = sum(given(giver, 9) for giver in range(ranks)).float()
    for turn in range(3):
        # Asked of the device, and not waited for.
        result.fill_(99)
        source.copy_((given(rank, 9) * (turn + 1)).float().to("late"))
        go(reduction, mode)
        if not torch.equal(result.elem, wanted * (turn + 1)):
            complain("by way of the host", mode, in_place, turn, result.elem)
    reduction.free()


def wrong_element():
    """The negative control of all comparisons here."""
    source, result = vectors(given(rank, 9), 9, torch.float32)
    reduction = WrongElement(open_reduction(comm, "ring", source, result), result)
    wanted = sum(given(giver, 9) for giver in range(ranks)).float()
    reduction.run()
    if int((result != wanted).sum()) != 1:
        complain("a wrong element is not one wrong element:", result, wanted)
    reduction.free()


def problems_of(_, among):
    """The complaints of this rank where the others are these."""
    global comm, ranks, rank
    comm = among
    ranks = among.size
    rank = among.rank
    problems.clear()
    for algorithm in ("native", *able()):
        every_way(algorithm)
    for algorithm in able():
        traffic_is_the_formulas(algorithm)
    for check in (orders, options, collectives, gloo, refusals, wrong_element):
        check()
    for case in product(MODES, (False, True)):
        by_way_of_the_host(*case)
    if install().device_wide:
        complain("waits for all streams of the device")
    return problems[:50]


def main():
    torch.set_num_threads(1)
    install()
    answer_each(lambda size: size, problems_of)


main()
