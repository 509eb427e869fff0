"""A standalone benchmark, under any launcher, without the console.

    mpiexec -n 4 python -m mpi4py -m spbench_workers halo.exchange --num-spatial-parts 4

prints the lines of the reference scripts: rank and size, the mean time, the result of the check.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from spbench_core.catalog import BENCHMARKS, COMMON_FAULTS
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.parameters import Params
from spbench_workers.binding.before_mpi import load_kernels_first
from spbench_workers.comm import DisagreementError, World, agree, open_world
from spbench_workers.context import Context
from spbench_workers.errors import CannotRunError
from spbench_workers.session import load_runners, run

USAGE_STATUS = 2


class PrintingChannel:
    """A channel that prints the events of one case as lines; each line is one write.

    ``named`` says whether a passed check is named; the reference scripts print one without a name.
    """

    def __init__(self, rank: int, *, named: bool = False) -> None:
        self.rank: int | None = rank
        self._named = named
        self.failed = False
        self._times: list[float] = []

    def send(self, event: str, **fields: Any) -> None:
        """Print an event as a line; some kinds print nothing."""
        printer = getattr(self, f"_print_{event}", None)
        if printer is not None:
            printer(**fields)

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no cases: there is no console."""
        return []

    def close(self) -> None:
        """Print the mean time, as the reference scripts do."""
        if self._times:
            mean = sum(self._times) / len(self._times)
            self._line(f"Rank:{self.rank} Time taken (ms):{mean:.6f}")

    def _print_samples(self, metric: str, values: list[float], **_: Any) -> None:
        if metric == "time_ms":
            self._times.extend(values)

    def _print_check(self, name: str, passed: bool, **fields: Any) -> None:
        if passed:
            self._line(f"Validation passed Rank:{self.rank}" + (f" {name}" if self._named else ""))
            return
        self.failed = True
        error, detail = fields["max_abs_error"], fields["detail"]
        size = "not a number" if error is None else f"{error:.7g}"
        self._line(f"Validation failed Rank:{self.rank} {name}: largest error {size}: {detail}")

    def _print_metric(self, name: str, value: float | None, **fields: Any) -> None:
        labels = "".join(f" {key}={label}" for key, label in fields.get("labels", {}).items())
        by = f" (limit, by {fields['measured_by']})" if "measured_by" in fields else ""
        number = f"{value:.7g}" if isinstance(value, float) else value
        self._line(f"Rank:{self.rank} {name}:{number}{labels}{by}")

    def _print_choice(self, name: str, value: str, reason: str, **_: Any) -> None:
        self._line(f"Rank:{self.rank} {name}:{value} ({reason})")

    def _print_log(self, message: str, **_: Any) -> None:
        self._line(f"Rank:{self.rank} {message}")

    def _line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


class OwnLinesChannel(PrintingChannel):
    """A channel that prints the benchmark's own lines on rank 0, and failed checks."""

    def close(self) -> None:
        """Print nothing at the end."""

    def _print_check(self, name: str, passed: bool, **fields: Any) -> None:
        if not passed:
            super()._print_check(name, passed, **fields)

    def _print_metric(self, name: str, value: float | None, **fields: Any) -> None:
        """Print nothing: the benchmark's own lines have it."""

    def _print_choice(self, name: str, value: str, reason: str, **_: Any) -> None:
        """Print nothing: the benchmark's own lines have it."""

    def _print_log(self, message: str, level: str = "line", **_: Any) -> None:
        if level == "line" and self.rank == 0:
            self._line(message)


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing them: all ranks parse, rank 0 prints."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")


def parser_of(entry: Benchmark) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's command line: its flags come from the catalog.

    It raises a ValueError for wrong words.
    """
    parser = _Parser(
        prog=f"spbench_workers {entry.name}", description=entry.summary, allow_abbrev=False
    )
    for param in entry.params:
        flags = [param.flag, *("--" + alias.replace("_", "-") for alias in param.aliases)]
        text = f"{param.help} (default: {param.default})".replace("%", "%%")
        # The reference scripts' switches take no value.
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if param.kind == "bool" else {}
        parser.add_argument(*flags, dest=param.name, metavar="V", help=text, **switch)
    faults = [*entry.faults, *COMMON_FAULTS]
    parser.add_argument("--inject", choices=faults, help="plant a fault in the last rank")
    return parser


def main(words: list[str]) -> None:
    """Run the benchmark that the words name; exit 1 where a check failed, 2 on wrong words."""
    load_kernels_first(words, os.environ)
    world = open_world()
    if world.doubt and world.rank == 0:
        sys.stderr.write(f"spbench_workers: warning: {world.doubt}\n")
    try:
        # First, since from here on all ranks must do the same.
        agree(world.comm, {"words": words})
        if {"-h", "--help"} & set(words):
            _help(world, words)
        entry, cases, inject = read_words(words, world.size)
    except (ValueError, DisagreementError) as error:
        if world.rank == 0:
            sys.stderr.write(f"spbench_workers: error: {error}\n")
        _leave(world, USAGE_STATUS)
    try:
        failed = _run(world, entry, cases, inject)
    except CannotRunError as error:
        # Other ranks may be in the midst of a message to this one.
        sys.stderr.write(f"spbench_workers: error: rank {world.rank}: {error}\n")
        sys.stderr.flush()
        world.comm.Abort(1)
    _leave(world, int(failed))


def read_words(words: list[str], size: int) -> tuple[Benchmark, list[Params], str | None]:
    """Return the benchmark, the parameters of its cases and the fault to plant.

    Args:
        words: The command line: a benchmark's name and its flags.
        size: The number of ranks that were started.

    Raises:
        ValueError: The words are wrong, or do not fit the number of ranks.
    """
    entry = _entry(words[0])
    given = vars(parser_of(entry).parse_args(words[1:]))
    inject = given.pop("inject")
    try:
        cases = entry.cases(given)
    except ExceptionGroup as group:
        raise ValueError("; ".join(str(error) for error in group.exceptions)) from None
    for differs, params in cases:
        _check_ranks(entry, differs, params, size)
    return entry, [params for _, params in cases], inject


def _check_ranks(entry: Benchmark, differs: Params, params: Params, size: int) -> None:
    ranks = entry.ranks(params)
    if ranks.exact not in (None, size) or size < ranks.minimum:
        needed = ranks.exact if ranks.exact is not None else f"at least {ranks.minimum}"
        which = (
            ", ".join(f"{name} {value}" for name, value in differs.items()) or "these parameters"
        )
        raise ValueError(f"{entry.name} with {which} runs on {needed} ranks, not on {size}")


def _entry(name: str) -> Benchmark:
    if name not in BENCHMARKS:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def _help(world: World, words: list[str]) -> NoReturn:
    if world.rank == 0:
        if words[0].startswith("-"):
            lines = [f"  {entry.name:20} {entry.summary}\n" for entry in BENCHMARKS.values()]
            sys.stdout.write("usage: spbench_workers BENCHMARK [--flags]\n\n" + "".join(lines))
        else:
            parser_of(_entry(words[0])).print_help()
        sys.stdout.flush()
    _leave(world, 0)


def _leave(world: World, status: int) -> NoReturn:
    """End all ranks together, MPI first: it would report a status above 0 as a crash."""
    from mpi4py import MPI

    world.comm.Barrier()
    MPI.Finalize()
    sys.exit(status)


def _run(world: World, entry: Benchmark, cases: list[Params], inject: str | None) -> bool:
    """Run the cases one after another; return whether a check failed on any rank."""
    if not entry.own_lines:
        sys.stdout.write(f"rank : {world.rank} size:  {world.size}\n")
        sys.stdout.flush()
    runner = load_runners([entry.name])[entry.name]
    failed = False
    for index, params in enumerate(cases):
        kind = OwnLinesChannel if entry.own_lines else PrintingChannel
        channel = kind(world.rank, named=len(entry.checks) > 1)
        context = Context(
            world,
            channel,
            case=entry.name,
            benchmark=entry.name,
            params=params,
            inject=inject,
            first=index == 0,
            last=index == len(cases) - 1,
        )
        run(runner, context)
        channel.close()
        failed |= channel.failed
    return bool(world.comm.allreduce(int(failed)))
