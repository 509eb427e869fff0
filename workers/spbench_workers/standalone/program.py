"""A standalone benchmark, under any launcher, without the console.

    mpiexec -n 4 python -m mpi4py -m spbench_workers halo.exchange --num-spatial-parts 4

It prints the lines of the reference scripts: rank and size, the mean time, the result of the check.
Instead of a benchmark, the first argument may name a reference script (`scripts`), with the flags
and defaults of that script.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.errors import CannotRunError
from spbench_parallel.groups import DisagreementError, require_agreement
from spbench_workers.binding.before_mpi import request_eager_loading
from spbench_workers.comm import World, finalize_mpi, open_world
from spbench_workers.context import Context
from spbench_workers.session import Runner, load_runners, run
from spbench_workers.standalone.command_line import (
    CommandLine,
    check_ranks,
    create_parser,
    find_benchmark,
    list_true_defaults,
    read_benchmark,
)
from spbench_workers.standalone.printing import open_printing_channel
from spbench_workers.standalone.progress_reporter import ProgressReporter
from spbench_workers.standalone.script_command_line import (
    SCRIPTS,
    create_script_parser,
    read_script,
)

USAGE_STATUS = 2


def main(arguments: list[str]) -> None:
    """Run the benchmark of a command line.

    Exit with 1 if a check failed, 2 for invalid arguments.
    """
    if arguments[0] in BENCHMARKS and BENCHMARKS[arguments[0]].starts_program:
        _print_message("error", f"{arguments[0]} has no line by hand: launch the program itself")
        sys.exit(USAGE_STATUS)
    request_eager_loading(arguments, os.environ)
    world = open_world()
    if world.rank == 0 and world.local_rank_conflict:
        _print_message("warning", world.local_rank_conflict)
    try:
        # First of all, because from here on all ranks must run the same benchmark.
        require_agreement(world.comm, {"words": arguments})
        if {"-h", "--help"} & set(arguments):
            _print_help(world, arguments)
        line = read_command_line(arguments, world.size)
    except (ValueError, DisagreementError) as error:
        if world.rank == 0:
            _print_message("error", str(error))
        _exit(world, USAGE_STATUS)
    reporter = ProgressReporter() if world.rank == 0 else None
    try:
        runner = load_runners([line.entry.name])[line.entry.name]
        failed = run_line(world, line, runner, reporter)
    except Exception as error:
        if isinstance(error, CannotRunError):
            _print_message("error", f"rank {world.rank}: {error}")
        else:
            traceback.print_exc()
        # Abort and not exit: other ranks may be waiting for a message of this one.
        world.comm.Abort(1)
    finally:
        if reporter is not None:
            reporter.close()
    _exit(world, int(failed))


def read_command_line(arguments: list[str], size: int) -> CommandLine:
    """Return the parsed command line.

    Args:
        arguments: A benchmark's name, or a reference script's, and its flags.
        size: The number of ranks that were started.

    Raises:
        ValueError: The arguments are invalid, or do not fit the number of ranks.
    """
    line = read_script(arguments) if arguments[0] in SCRIPTS else read_benchmark(arguments)
    check_ranks(line, size)
    return line


def _print_help(world: World, arguments: list[str]) -> NoReturn:
    if world.rank == 0:
        if arguments[0].startswith("-"):
            sys.stdout.write(list_names())
        elif arguments[0] in SCRIPTS:
            create_script_parser(SCRIPTS[arguments[0]]).print_help()
        else:
            entry = find_benchmark(arguments[0])
            create_parser(entry, list_true_defaults(entry)).print_help()
        sys.stdout.flush()
    _exit(world, 0)


def list_names() -> str:
    """Return the usage, with the names of all benchmarks and scripts."""
    lines = ["usage: spbench_workers BENCHMARK [--flags]", ""]
    lines += [f"  {entry.name:20} {entry.summary}" for entry in BENCHMARKS.values()]
    lines += ["", "with the flags and defaults of a reference script:", ""]
    lines += [f"  {script.name:20} {script.file}" for script in SCRIPTS.values()]
    return "\n".join(lines) + "\n"


def _print_message(kind: str, text: str) -> None:
    sys.stderr.write(f"spbench_workers: {kind}: {text}\n")
    sys.stderr.flush()


def _exit(world: World, status: int) -> NoReturn:
    """End all ranks together.

    MPI ends first, because it would report a status above 0 as a crash.
    """
    world.comm.Barrier()
    finalize_mpi()
    sys.exit(status)


def run_line(
    world: World, line: CommandLine, runner: Runner, reporter: ProgressReporter | None = None
) -> bool:
    """Run the cases one after another; return whether a check failed on any rank."""
    _print_first_lines(world, line)
    failed = False
    for index, params in enumerate(line.cases):
        channel = open_printing_channel(line.entry, world.rank, reporter)
        context = Context(
            world,
            channel,
            case=line.entry.name,
            benchmark=line.entry.name,
            params=params,
            inject=line.inject,
            first=index == 0,
            last=index == len(line.cases) - 1,
            verbose=line.verbose,
        )
        run(runner, context)
        channel.close()
        failed |= channel.failed
    return bool(world.comm.allreduce(int(failed)))


def _print_first_lines(world: World, line: CommandLine) -> None:
    """Print rank and size, warnings, and the first lines of a script."""
    if not line.entry.own_lines:
        sys.stdout.write(f"rank : {world.rank} size:  {world.size}\n")
        sys.stdout.flush()
    if world.rank == 0:
        for warning in line.warnings:
            _print_message("warning", warning)
        sys.stdout.write("".join(f"{text}\n" for text in line.first_lines))
        sys.stdout.flush()
