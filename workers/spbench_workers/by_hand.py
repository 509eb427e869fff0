"""A benchmark by hand, under any launcher, without the console.

    mpiexec -n 4 python -m mpi4py -m spbench_workers halo.exchange --num-spatial-parts 4

prints the lines of the reference scripts: rank and size, the mean time, whether the result held.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from spbench_workers.catalog import BENCHMARKS, COMMON_FAULTS, Benchmark, Params
from spbench_workers.comm import World, agree, open_world
from spbench_workers.context import Context
from spbench_workers.session import load_runners

USAGE_STATUS = 2


class PrintingChannel:
    """Turns the events of one case into lines for people; each line leaves in one write."""

    def __init__(self, rank: int) -> None:
        self.rank: int | None = rank
        self.failed = False
        self._times: list[float] = []

    def send(self, event: str, **fields: Any) -> None:
        """Print what this event means to a reader, or nothing."""
        printer = getattr(self, f"_print_{event}", None)
        if printer is not None:
            printer(**fields)

    def receive_cases(self) -> list[dict[str, Any]]:
        """There is no console to give any."""
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
            self._line(f"Validation passed Rank:{self.rank}")
            return
        self.failed = True
        error, detail = fields["max_abs_error"], fields["detail"]
        self._line(f"Validation failed Rank:{self.rank} {name}: largest error {error} {detail}")

    def _print_metric(self, name: str, value: float | None, **fields: Any) -> None:
        labels = "".join(f" {key}={label}" for key, label in fields.get("labels", {}).items())
        by = f" (limit, by {fields['measured_by']})" if "measured_by" in fields else ""
        self._line(f"Rank:{self.rank} {name}:{value}{labels}{by}")

    def _print_log(self, message: str, **_: Any) -> None:
        self._line(f"Rank:{self.rank} {message}")

    def _line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def parser_of(entry: Benchmark) -> argparse.ArgumentParser:
    """Return the command line of a benchmark: its flags come from the catalog."""
    parser = argparse.ArgumentParser(
        prog=f"spbench_workers {entry.name}", description=entry.summary, allow_abbrev=False
    )
    for param in entry.params:
        flags = [param.flag, *("--" + alias.replace("_", "-") for alias in param.aliases)]
        text = f"{param.help} (default: {param.default})".replace("%", "%%")
        parser.add_argument(*flags, dest=param.name, metavar="V", help=text)
    faults = [*entry.faults, *COMMON_FAULTS]
    parser.add_argument("--inject", choices=faults, help="plant a fault in the last rank")
    return parser


def main(words: list[str]) -> None:
    """Run the benchmark that the words name; exit 1 where a check failed, 2 on wrong words."""
    world = open_world()
    try:
        entry, params, inject = _read(words, world)
        agree(world.comm, {"benchmark": entry.name, "params": params, "inject": inject})
    except (ValueError, RuntimeError) as error:
        _refuse(world, str(error))
    _run(world, entry, params, inject)


def _read(words: list[str], world: World) -> tuple[Benchmark, Params, str | None]:
    entry = BENCHMARKS.get(words[0])
    if entry is None:
        names = ", ".join(BENCHMARKS)
        raise ValueError(f"no benchmark is called {words[0]!r}; there are {names}")
    if world.rank != 0 and {"-h", "--help"} & set(words):
        sys.exit(0)
    given = vars(parser_of(entry).parse_args(words[1:]))
    inject = given.pop("inject")
    try:
        params = entry.complete(given)
    except ExceptionGroup as group:
        raise ValueError("; ".join(str(error) for error in group.exceptions)) from None
    ranks = entry.ranks(params)
    if ranks.exact not in (None, world.size) or world.size < ranks.minimum:
        needed = ranks.exact if ranks.exact is not None else f"at least {ranks.minimum}"
        raise ValueError(
            f"{entry.name} with these parameters runs on {needed} ranks, not on {world.size}"
        )
    return entry, params, inject


def _refuse(world: World, message: str) -> None:
    if world.rank == 0:
        sys.stderr.write(f"spbench_workers: error: {message}\n")
    world.comm.Barrier()
    sys.exit(USAGE_STATUS)


def _run(world: World, entry: Benchmark, params: Params, inject: str | None) -> None:
    channel = PrintingChannel(world.rank)
    sys.stdout.write(f"rank : {world.rank} size:  {world.size}\n")
    sys.stdout.flush()
    runner = load_runners([entry.name])[entry.name]
    context = Context(
        world, channel, case=entry.name, benchmark=entry.name, params=params, inject=inject
    )
    runner(context)
    channel.close()
    if world.comm.allreduce(int(channel.failed)):
        sys.exit(1)
