"""A standalone benchmark, under any launcher, without the console.

    mpiexec -n 4 python -m mpi4py -m spbench_workers halo.exchange --num-spatial-parts 4

prints the lines of the reference scripts: rank and size, the mean time, the result of the check.
In place of a benchmark's name the first word may be a reference script's (`scripts`), whose flags
and defaults then hold.
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
    read_benchmark,
    true_defaults,
)
from spbench_workers.standalone.printing import open_printing_channel
from spbench_workers.standalone.progress_reporter import ProgressReporter
from spbench_workers.standalone.script_command_line import (
    SCRIPTS,
    create_script_parser,
    read_script,
)

USAGE_STATUS = 2


def main(words: list[str]) -> None:
    """Run the benchmark that the words name.

    Exit 1 where a check failed, 2 on wrong words.
    """
    if words[0] in BENCHMARKS and BENCHMARKS[words[0]].starts_program:
        _say("error", f"{words[0]} has no line by hand: launch the program itself")
        sys.exit(USAGE_STATUS)
    request_eager_loading(words, os.environ)
    world = open_world()
    if world.rank == 0 and world.local_rank_conflict:
        _say("warning", world.local_rank_conflict)
    try:
        # First, since from here on all ranks must do the same.
        require_agreement(world.comm, {"words": words})
        if {"-h", "--help"} & set(words):
            _help(world, words)
        line = read_command_line(words, world.size)
    except (ValueError, DisagreementError) as error:
        if world.rank == 0:
            _say("error", str(error))
        _leave(world, USAGE_STATUS)
    silence = ProgressReporter() if world.rank == 0 else None
    try:
        runner = load_runners([line.entry.name])[line.entry.name]
        failed = run_line(world, line, runner, silence)
    except Exception as error:
        if isinstance(error, CannotRunError):
            _say("error", f"rank {world.rank}: {error}")
        else:
            traceback.print_exc()
        # Other ranks may be in the midst of a message to this one.
        world.comm.Abort(1)
    finally:
        if silence is not None:
            silence.close()
    _leave(world, int(failed))


def read_command_line(words: list[str], size: int) -> CommandLine:
    """Return the command line of these words.

    Args:
        words: A benchmark's name, or a reference script's, and its flags.
        size: The number of ranks that were started.

    Raises:
        ValueError: The words are wrong, or do not fit the number of ranks.
    """
    line = read_script(words) if words[0] in SCRIPTS else read_benchmark(words)
    check_ranks(line, size)
    return line


def _help(world: World, words: list[str]) -> NoReturn:
    if world.rank == 0:
        if words[0].startswith("-"):
            sys.stdout.write(list_names())
        elif words[0] in SCRIPTS:
            create_script_parser(SCRIPTS[words[0]]).print_help()
        else:
            entry = find_benchmark(words[0])
            create_parser(entry, true_defaults(entry)).print_help()
        sys.stdout.flush()
    _leave(world, 0)


def list_names() -> str:
    """Return the names that a command line may begin with, benchmarks' and scripts'."""
    lines = ["usage: spbench_workers BENCHMARK [--flags]", ""]
    lines += [f"  {entry.name:20} {entry.summary}" for entry in BENCHMARKS.values()]
    lines += ["", "with the flags and defaults of a reference script:", ""]
    lines += [f"  {script.name:20} {script.file}" for script in SCRIPTS.values()]
    return "\n".join(lines) + "\n"


def _say(kind: str, text: str) -> None:
    sys.stderr.write(f"spbench_workers: {kind}: {text}\n")
    sys.stderr.flush()


def _leave(world: World, status: int) -> NoReturn:
    """End all ranks together, MPI first: it would report a status above 0 as a crash."""
    world.comm.Barrier()
    finalize_mpi()
    sys.exit(status)


def run_line(
    world: World, line: CommandLine, runner: Runner, silence: ProgressReporter | None = None
) -> bool:
    """Run the cases one after another; return whether a check failed on any rank."""
    _begin(world, line)
    failed = False
    for index, params in enumerate(line.cases):
        channel = open_printing_channel(line.entry, world.rank, silence)
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


def _begin(world: World, line: CommandLine) -> None:
    """Print what comes first."""
    if not line.entry.own_lines:
        sys.stdout.write(f"rank : {world.rank} size:  {world.size}\n")
        sys.stdout.flush()
    if world.rank == 0:
        for warning in line.warnings:
            _say("warning", warning)
        sys.stdout.write("".join(f"{said}\n" for said in line.first_lines))
        sys.stdout.flush()
