"""The benchmark ``program.run``: any program in the ranks' place, and what it prints."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from spbench_core.catalog.parameters import Params
from spbench_core.events import rank_events
from spbench_core.events.statuses import Activity, LogLevel
from spbench_core.programs.expectation import OutputExpectation
from spbench_core.programs.output import LineSplitter, OutputFindings, OutputReader
from spbench_core.programs.placeholders import fill_placeholders
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.program.child import TICK, ChildProgram, ProgramCommand, ProgramEnd
from spbench_workers.benchmarks.program.entry import (
    ProgramParams,
    parse_wait_for,
    read_expectation,
    select_argv,
)
from spbench_workers.channel.file import FileChannel
from spbench_workers.channel.tcp import TcpChannel
from spbench_workers.comm import World
from spbench_workers.context import Context

_PRIVATE = (rank_events.ENV_COLLECTOR, rank_events.ENV_TOKEN, rank_events.ENV_FAN_IN)
"""Variables that are this rank's alone."""
_FORGED = "planted by --inject forge-line"
_MOST_READ = 64 << 20
"""Bytes of a file of results."""
_PATIENCE = 3
"""Ticks that a program is given to end by itself, once another rank's has broken off."""


def run(context: Context, console: TcpChannel | FileChannel) -> bool:
    """Run the case on this rank, which starts the program or has nothing to do.

    ``console`` tells what other ranks' programs have done. Returns whether this rank's broke off,
    which leaves the others to wait for it.
    """
    words = select_argv(context.params, context.world.rank)
    if words is None or not starts_program(context.read_params(ProgramParams).per, context.world):
        for check in context.entry.list_checks(context.params):
            context.check(check, 0.0)
        return False
    of_rank = ProgramRun(context, console, build_command(context, words))
    of_rank.run()
    return of_rank.broke_off


def starts_program(per: str, world: World) -> bool:
    """Whether a rank starts the program.

    Args:
        per: ``rank``, ``host`` (its first rank) or ``job`` (rank 0).
        world: The rank's place.
    """
    if per == "host":
        first = world.hosts.index(world.host) if world.host in world.hosts else None
        return world.local_rank == 0 if first is None else world.rank == first
    return per == "rank" or world.rank == 0


def build_command(context: Context, words: list[str]) -> ProgramCommand:
    """Return the program of this rank, placeholders filled in."""

    def fill(text: str) -> str:
        return fill_placeholders(
            text, lambda name: resolve_placeholder(name, context.params, context.world)
        )

    params = context.read_params(ProgramParams)
    inherited = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    own = {name: fill(text) for name, text in (params.env or {}).items()}
    cwd = None if params.cwd is None else fill(params.cwd)
    return ProgramCommand([fill(word) for word in words], cwd, inherited | own)


def resolve_placeholder(name: str, params: Params, world: World) -> str:
    """Return what stands for a placeholder.

    Raises:
        CannotRunError: It is a host that nobody has told this rank.
    """
    known: dict[str, Any] = {
        "rank": world.rank,
        "np": world.size,
        "host": world.host,
        "local_rank": world.local_rank,
    }
    if name in known:
        return str(known[name])
    if name in params:
        return str(params[name])
    if not world.hosts:
        raise CannotRunError(f"{{{name}}} needs the console: a batch job's ranks know no others")
    if name == "hosts":
        return ",".join(dict.fromkeys(world.hosts))
    rank = int(name.partition(":")[2])
    if rank >= world.size:
        raise CannotRunError(f"{{{name}}}: there is no rank {rank} among {world.size}")
    return world.hosts[rank]


class ProgramRun:
    """One rank's program from its start to what is reported of it."""

    def __init__(
        self, context: Context, console: TcpChannel | FileChannel, command: ProgramCommand
    ) -> None:
        self._context = context
        self._console = console
        self._command = command
        params = context.params
        self._expected = self._expectation(params)
        self._is_read = (
            context.read_params(ProgramParams).output == "every" or context.world.rank == 0
        )
        self._live: dict[str, float] = {}
        self._reader = OutputReader(self._expected, self._live.__setitem__)
        self._waiting = parse_wait_for(params)
        self._awaited_line = self._line_for_others()
        self._lines = 0
        self._broken_off: str | None = None
        self._patience = _PATIENCE
        self.broke_off = False
        """Whether it ended as it should not."""

    def run(self) -> None:
        """Start the program when its turn comes, follow it, and report."""
        if (why := self._wait_for_turn()) is not None:
            self._report(None, why)
            return
        results = ResultsFile(self._context, self._command)
        self._context.progress(Activity.RUNNING, self._lines, 0)
        child = ChildProgram(self._command, self._on_line, self._on_tick)
        self._console.locate = child.describe_state
        self._console.kill_children = child.kill
        end = self._run(child)
        for line in results.lines():
            self._on_line(line)
        if self._context.planted_in_job("forge-line"):
            self._reader.read_line(_FORGED)
        self._report(end, child.stop_reason)

    def _run(self, child: ChildProgram) -> ProgramEnd:
        """Run the program; what a planted fault adds is of its time."""
        ends: list[tuple[ProgramEnd, float]] = []

        def body() -> None:
            start = time.perf_counter()
            ends.append((child.run(), time.perf_counter() - start))

        start = time.perf_counter()
        self._context.with_fault(body)()
        (end, inside) = ends[0]
        whole = time.perf_counter() - start
        return replace(end, seconds=end.seconds + whole - inside)

    def _expectation(self, params: Params) -> OutputExpectation:
        expected = read_expectation(params)
        forged = self._context.planted_in_job("forge-line")
        never = (re.compile(_FORGED),) if forged else ()
        return replace(expected, never=(*expected.never, *never))

    # While it runs

    def _on_line(self, line: str) -> None:
        self._lines += 1
        if not self._context.planted_in_job("drop-output"):
            self._reader.read_line(line)
        if self._awaited_line is not None and self._awaited_line.search(line):
            self._awaited_line = None
            self._context.log(f"has printed: {line[:200]}", LogLevel.PRINTED)

    def _on_tick(self) -> str | None:
        """Tell how far it is; return why it must end, once another rank's has broken off."""
        self._context.progress(Activity.RUNNING, self._lines, 0)
        self._tell_live()
        self._hear()
        if self._broken_off is None:
            return None
        self._patience -= 1
        return self._broken_off if self._patience < 0 else None

    def _tell_live(self) -> None:
        if self._is_read:
            for name, value in self._live.items():
                self._context.metric(name, value)
            self._live.clear()

    def _hear(self, seconds: float = 0.0) -> set[int]:
        """Take in what the console tells of others; return the ranks whose line has come."""
        printed = set()
        for told in self._console.read_program_reports(seconds):
            if told["reply"] == LogLevel.BROKEN_OFF:
                why = f"on rank {told['rank']} {told['message']}"
                self._broken_off = self._broken_off or why
            else:
                printed.add(int(told["rank"]))
        return printed

    # Ranks that wait for others

    def _line_for_others(self) -> re.Pattern[str] | None:
        waiting = self._waiting
        return (
            re.compile(waiting[2]) if waiting and waiting[1] == self._context.world.rank else None
        )

    def _wait_for_turn(self) -> str | None:
        """Wait for the line of another rank; return why it does not come."""
        if self._waiting is None or self._waiting[0] != self._context.world.rank:
            return None
        if not self._context.world.hosts:
            raise CannotRunError("wait_for needs the console: a batch job's ranks hear no others")
        of = self._waiting[1]
        while of not in self._hear(TICK):
            if self._broken_off is not None:
                return self._broken_off
            self._context.progress(Activity.WAITING, 0, 0)
        return None

    # Afterwards

    def _report(self, end: ProgramEnd | None, stopped: str | None) -> None:
        """Report its time, its numbers and its checks; the exit code, the cause, comes first."""
        context = self._context
        found = self._reader.finish()
        if end is not None:
            context.samples("time_ms", [end.seconds * 1e3])
        self._check_exit(end, stopped)
        if self._awaited_line is not None:
            pattern = self._awaited_line.pattern
            name = self._command.argv[0]
            self._break_off(f"{name} ended, and had printed no line that matches {pattern!r}")
        self._report_numbers(found)
        self._check_output(found)

    def _check_exit(self, end: ProgramEnd | None, stopped: str | None) -> None:
        context = self._context
        program = self._command.argv[0]
        name = f"{program} of rank {context.world.rank}"
        if end is None or stopped is not None:
            what = "was not started" if end is None else "was ended"
            # less than any exit code is wrong by: a consequence, and never the worst
            context.check("exit_code", 0.5, 0.0, f"{name} {what}, since {stopped}")
            return
        expected = context.read_params(ProgramParams).exit_code
        code = end.code + (1 if context.planted_in_job("corrupt-exit") else 0)
        passed = context.check(
            "exit_code",
            abs(code - expected),
            0.0,
            "" if code == expected else f"{name} {end.description}",
        )
        if not passed:
            self._break_off(f"{program} {end.description}")

    def _break_off(self, why: str) -> None:
        self.broke_off = True
        self._context.log(why, LogLevel.BROKEN_OFF)

    def _report_numbers(self, found: OutputFindings) -> None:
        if not self._is_read:
            return
        context = self._context
        for name, values in found.samples.items():
            context.samples(name, values)
        for point in found.points:
            context.metric(point.metric, point.value, **point.labels)
        for name, value in found.values.items():
            if name not in found.samples:
                context.metric(name, value)

    def _check_output(self, found: OutputFindings) -> None:
        context = self._context
        made = self._context.entry.list_checks(self._context.params)
        patterns = {pattern.pattern for pattern in self._expected.must}
        lines = [f"no line matches {one!r}" for one in found.missing if one in patterns]
        numbers = [f"it has not printed {one}" for one in found.missing if one not in patterns]
        forbidden = [f"it has printed: {line[:200]}" for line in found.forbidden]
        if not self._is_read:
            lines = []
            numbers = []
        for name, wrong in (("never", forbidden), ("must", lines), ("output", numbers)):
            if name in made:
                context.check(name, float(len(wrong)), 0.0, wrong[0] if wrong else "")


class ResultsFile:
    """The file that a program writes its results to: what was in it before does not count."""

    def __init__(self, context: Context, command: ProgramCommand) -> None:
        params = context.params
        world = context.world
        name = context.read_params(ProgramParams).reads
        filled_in = name and fill_placeholders(
            name, lambda one: resolve_placeholder(one, params, world)
        )
        self._path = Path(command.cwd or ".", filled_in) if filled_in else None
        self._before = self._state()

    def lines(self) -> list[str]:
        """Return the lines that it has got since; none where it was not written, or is not read."""
        now = self._state()
        before = self._before
        if self._path is None or now is None or now == before:
            return []
        grown = before is not None and now[0] == before[0] and now[1] > before[1]
        splitter = LineSplitter()
        with self._path.open("rb") as file:
            file.seek(before[1] if grown and before is not None else 0)
            return [*splitter.feed(file.read(_MOST_READ)), *splitter.flush()]

    def _state(self) -> tuple[int, int, int] | None:
        """Return the file's number, its size and the time of its last change."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return found and (found.st_ino, found.st_size, found.st_mtime_ns)
