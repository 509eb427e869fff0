"""Reduce with every algorithm, format, operation and mode, and write all problems.

    mpirun -n 6 python -m mpi4py reduce_all.py CASES.json RESULTS.json

A case is a number of ranks. A result has a list of problems for each rank, which is empty if all
results were correct. Expected results are computed here from the inputs of all ranks, in whole
numbers that every format represents exactly.
"""

from functools import partial
from itertools import product

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.allreduce.entry import OPS
from spbench_workers.benchmarks.allreduce.model.formulas import compute_costs
from spbench_workers.benchmarks.allreduce.sweep import CorruptingCollective, RotatingAllreduce
from spbench_workers.collectives import plan
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.native import describe_registered_operation
from spbench_workers.collectives.opening import StagedCollective, open_allreduce, open_collective
from standins.late_device import install
from support.rank_cases import run_each_case

MODES = ("blocking", "persistent", "nonblocking")
COUNTS = (0, 1, 2, 3, 5, 13, 64, 1009)
FOLDS = {
    "sum": lambda inputs: inputs.sum(0),
    "prod": lambda inputs: inputs.prod(0),
    "max": lambda inputs: inputs.amax(0),
    "min": lambda inputs: inputs.amin(0),
}
comm = MPI.COMM_WORLD
ranks = comm.size
rank = comm.rank
problems = []


def make_input(source_rank, count):
    """Return small whole numbers: their sums and products are exact in all formats."""
    return (torch.arange(count) * 7 + 3 * source_rank) % 3 + 1 - 2 * (source_rank % 2)


def report_problem(*parts):
    problems.append(" ".join(map(str, (f"rank {rank}:", *parts))))


def run_collective(collective, mode):
    if mode == "nonblocking":
        collective.start()
        collective.poll()
        collective.wait()
    else:
        collective.run()


def make_vectors(own_input, result_count, dtype, offset=None):
    """Return source and poisoned result, which are one vector if an offset is given."""
    source = own_input.to(dtype)
    result = torch.full((result_count,), 99, dtype=dtype)
    if offset is None:
        return source, result
    shared = torch.full((max(result_count, len(own_input)),), 99, dtype=dtype)
    shared[offset : offset + len(own_input)] = source
    return shared, shared


def check_allreduce(
    algorithm, dtype="fp32", op="sum", mode="persistent", count=17, in_place=False, **options
):
    """Run an allreduce twice and check it; return the traffic of this rank."""
    own_input = make_input(rank, count)
    format_ = FORMATS[dtype]
    expected = FOLDS[op](
        torch.stack([make_input(source_rank, count) for source_rank in range(ranks)])
    ).to(format_)
    source, result = make_vectors(own_input, count, format_, 0 if in_place else None)
    collective = open_allreduce(comm, algorithm, source, result, op, mode=mode, **options)
    for _ in range(2):
        result.fill_(99)
        source.copy_(own_input)
        run_collective(collective, mode)
        if not torch.equal(result, expected):
            report_problem(
                algorithm, dtype, op, mode, count, in_place, options, result[:8], expected[:8]
            )
        if not in_place and not torch.equal(source, own_input.to(format_)):
            report_problem(algorithm, dtype, op, mode, count, options, "changed its source")
    collective.free()
    return collective.traffic


def check_all_variants(algorithm, modes=MODES):
    for dtype in FORMATS:
        check_allreduce(algorithm, dtype=dtype, mode=modes[0])
        check_allreduce(algorithm, dtype=dtype, op="max", mode=modes[-1], count=3, in_place=True)
    for op in OPS:
        check_allreduce(algorithm, op=op, mode=modes[0])
    for turn, (mode, in_place) in enumerate(product(modes, (False, True))):
        for count in COUNTS[turn % 2 :: 2]:
            check_allreduce(algorithm, mode=mode, in_place=in_place, count=count)


def check_traffic(algorithm, **options):
    """Compare counts of the ranks with the formulas."""
    for count in COUNTS:
        traffic = check_allreduce(algorithm, count=count, **options)
        work = compute_costs(algorithm, ranks, count, **options)
        bytes_ = comm.allreduce(traffic.bytes, op=MPI.MAX)
        messages = comm.allreduce(traffic.messages, op=MPI.MAX)
        if (bytes_, messages) != (4 * work.elements, work.messages):
            report_problem(algorithm, count, options, f"sends {bytes_} B in {messages}, not {work}")
        if traffic.rounds > work.rounds:
            report_problem(algorithm, count, options, f"{traffic.rounds} rounds, not {work.rounds}")


def check_orders():
    order = [*range(1, ranks, 2), *range(0, ranks, 2)]
    for algorithm in list_supported():
        check_allreduce(algorithm, order=order, count=7)
    for algorithm in ("binomial", "flat", "two_level", "chain"):
        check_rotation(algorithm, order)


def check_rotation(algorithm, order):
    source, result = make_vectors(make_input(rank, 11), 11, torch.float32)
    expected = sum(make_input(source_rank, 11) for source_rank in range(ranks)).float()
    rotation = RotatingAllreduce(
        order,
        lambda rotated_order: open_allreduce(comm, algorithm, source, result, order=rotated_order),
    )
    for turn in range(ranks + 1):
        result.fill_(99)
        rotation.run()
        if not torch.equal(result, expected):
            report_problem("rotated", algorithm, turn, result)
    rotation.free()


def list_supported():
    return [name for name in plan.ALGORITHMS if not plan.explain_unsupported(name, ranks)]


def check_options():
    for group in range(1, ranks + 1):
        check_traffic("two_level", group=group)
    for chunks in (1, 2, 5):
        check_traffic("chain", chunks=chunks)


def check_collectives():
    for case in product(
        ("allgather", "reduce_scatter", "broadcast", "alltoall"),
        MODES,
        (False, True),
        ("fp32", "bf16"),
        (0, 1, 5),
    ):
        check_collective(*case)


def check_collective(name, mode, in_place, dtype, part):
    total = part * ranks
    format_ = FORMATS[dtype]
    input_count = total if name in ("reduce_scatter", "alltoall") else part
    result_count = total if name in ("allgather", "alltoall") else part
    inputs = torch.stack([make_input(source_rank, input_count) for source_rank in range(ranks)])
    blocks = inputs[:, rank * part : (rank + 1) * part]
    expected = {
        "allgather": inputs.flatten,
        "reduce_scatter": lambda: blocks.sum(0),
        "broadcast": lambda: inputs[0],
        "alltoall": blocks.flatten,
    }[name]().to(format_)
    offset = None
    if in_place:
        offset = rank * part if name == "allgather" else 0
    source, result = make_vectors(inputs[rank], result_count, format_, offset)
    collective = open_collective(comm, name, source, result, mode=mode)
    run_collective(collective, mode)
    if not torch.equal(result[: len(expected)], expected):
        report_problem(name, mode, in_place, dtype, part, result, expected)
    collective.free()


def check_gloo():
    # Keep one group open for all: each later one uses it.
    source, result = make_vectors(make_input(rank, 3), 3, torch.float32)
    group_holder = open_allreduce(comm, "gloo", source, result)
    for mode, in_place, count in product(("blocking", "nonblocking"), (False, True), (0, 1, 13)):
        check_allreduce("gloo", mode=mode, in_place=in_place, count=count)
    for dtype, op in product(("fp64", "bf16", "int32"), OPS):
        check_allreduce("gloo", dtype=dtype, op=op, mode="blocking")
    group_holder.free()


def check_rejections():
    vector = torch.ones(4)
    for message, algorithm, mode in (
        ("mode persistent is for MPI", "gloo", "persistent"),
        ("nccl needs a GPU for each rank, and rank 0 has none", "nccl", "blocking"),
        ("muji_8 is drawn for 8 ranks", "muji_8", "blocking"),
    ):
        try:
            open_allreduce(comm, algorithm, vector, vector, mode=mode)
        except CannotRunError as error:
            if message not in str(error):
                report_problem(algorithm, error)
        else:
            report_problem(algorithm, mode, "was not refused")
    if describe_registered_operation(torch.float32, "sum") or not describe_registered_operation(
        torch.bfloat16, "sum"
    ):
        report_problem("says wrongly which operations are registered")


def check_staging(mode, in_place):
    """Check the path of a GPU's vectors with a device that works late.

    It copies to the host and back.
    """
    host_vectors = make_vectors(make_input(rank, 9), 9, torch.float32, 0 if in_place else None)
    source = host_vectors[0].to("late")
    result = source if in_place else host_vectors[1].to("late")
    collective = StagedCollective(source, result, partial(open_allreduce, comm, "ring", mode=mode))
    expected = sum(make_input(source_rank, 9) for source_rank in range(ranks)).float()
    for turn in range(3):
        # This work is queued and not awaited.
        result.fill_(99)
        source.copy_((make_input(rank, 9) * (turn + 1)).float().to("late"))
        run_collective(collective, mode)
        if not torch.equal(result.elem, expected * (turn + 1)):
            report_problem("by way of the host", mode, in_place, turn, result.elem)
    collective.free()


def check_wrong_element():
    """Check that a wrong element is detected."""
    source, result = make_vectors(make_input(rank, 9), 9, torch.float32)
    collective = CorruptingCollective(open_allreduce(comm, "ring", source, result), result)
    expected = sum(make_input(source_rank, 9) for source_rank in range(ranks)).float()
    collective.run()
    if int((result != expected).sum()) != 1:
        report_problem("a wrong element is not one wrong element:", result, expected)
    collective.free()


def collect_problems(_, communicator):
    """Return the problems of this rank with a communicator."""
    global comm, ranks, rank
    comm = communicator
    ranks = communicator.size
    rank = communicator.rank
    problems.clear()
    for algorithm in ("native", *list_supported()):
        check_all_variants(algorithm)
    for algorithm in list_supported():
        check_traffic(algorithm)
    for check in (
        check_orders,
        check_options,
        check_collectives,
        check_gloo,
        check_rejections,
        check_wrong_element,
    ):
        check()
    for case in product(MODES, (False, True)):
        check_staging(*case)
    if install().device_wide:
        report_problem("waits for all streams of the device")
    return problems[:50]


def main():
    torch.set_num_threads(1)
    install()
    run_each_case(lambda size: size, collect_problems)


main()
