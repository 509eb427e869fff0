"""Benchmark ``program.run``: any program instead of the ranks, and its output."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from spbench_core.catalog.parameters import Params
from spbench_core.events import rank_events
from spbench_core.events.statuses import Activity, LogLevel
from spbench_core.programs.expectation import OutputExpectation
from spbench_core.programs.output import LineSplitter, OutputReader, OutputResult
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
"""Variables of this rank that the program must not inherit."""
_FORGED = "planted by --inject forge-line"
_MOST_READ = 64 << 20
"""Most bytes that are read from a file of results."""
_PATIENCE = 3
"""Ticks until a program is stopped after another rank's program has failed."""


def run(context: Context, console: TcpChannel | FileChannel) -> bool:
    """Run the case on this rank, which may or may not start the program.

    ``console`` delivers messages about other ranks' programs. Returns whether this rank's program
    failed, so that the others would wait for it.
    """
    argv = select_argv(context.params, context.world.rank)
    if argv is None or not starts_program(context.read_params(ProgramParams).per, context.world):
        for check in context.entry.list_checks(context.params):
            context.check(check, 0.0)
        return False
    program_run = ProgramRun(context, console, build_command(context, argv))
    program_run.run()
    return program_run.failed


def starts_program(per: str, world: World) -> bool:
    """Return whether a rank starts the program.

    Args:
        per: ``rank``, ``host`` (its first rank) or ``job`` (rank 0).
        world: The rank and its host.
    """
    if per == "host":
        first_rank = world.hosts.index(world.host) if world.host in world.hosts else None
        return world.local_rank == 0 if first_rank is None else world.rank == first_rank
    return per == "rank" or world.rank == 0


def build_command(context: Context, argv: list[str]) -> ProgramCommand:
    """Return the command of this rank with placeholders replaced."""

    def fill(text: str) -> str:
        return fill_placeholders(
            text, lambda name: resolve_placeholder(name, context.params, context.world)
        )

    params = context.read_params(ProgramParams)
    inherited = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
    case_env = {name: fill(text) for name, text in (params.env or {}).items()}
    cwd = None if params.cwd is None else fill(params.cwd)
    return ProgramCommand([fill(word) for word in argv], cwd, inherited | case_env)


def resolve_placeholder(name: str, params: Params, world: World) -> str:
    """Return the value of a placeholder.

    Raises:
        CannotRunError: The value is a host that this rank does not know.
    """
    value_by_name: dict[str, Any] = {
        "rank": world.rank,
        "np": world.size,
        "host": world.host,
        "local_rank": world.local_rank,
    }
    if name in value_by_name:
        return str(value_by_name[name])
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
    """One rank's program, from its start to its report."""

    def __init__(
        self, context: Context, console: TcpChannel | FileChannel, command: ProgramCommand
    ) -> None:
        self._context = context
        self._console = console
        self._command = command
        params = context.params
        self._expected = self._make_expectation(params)
        self._is_read = (
            context.read_params(ProgramParams).output == "every" or context.world.rank == 0
        )
        self._live: dict[str, float] = {}
        self._reader = OutputReader(self._expected, self._live.__setitem__)
        self._awaited = parse_wait_for(params)
        self._awaited_line = self._compile_awaited_line()
        self._lines = 0
        self._other_failure: str | None = None
        self._patience = _PATIENCE
        self.failed = False
        """Whether the program failed."""

    def run(self) -> None:
        """Wait for the rank's turn, run the program, and report."""
        if (reason := self._wait_for_turn()) is not None:
            self._report(None, reason)
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
        """Run the program; the delay of an injected fault counts as its time."""
        ends: list[tuple[ProgramEnd, float]] = []

        def body() -> None:
            start = time.perf_counter()
            ends.append((child.run(), time.perf_counter() - start))

        start = time.perf_counter()
        self._context.with_fault(body)()
        (end, inside_seconds) = ends[0]
        total_seconds = time.perf_counter() - start
        return replace(end, seconds=end.seconds + total_seconds - inside_seconds)

    def _make_expectation(self, params: Params) -> OutputExpectation:
        expected = read_expectation(params)
        forged = self._context.planted_in_job("forge-line")
        never = (re.compile(_FORGED),) if forged else ()
        return replace(expected, never=(*expected.never, *never))

    def _on_line(self, line: str) -> None:
        self._lines += 1
        if not self._context.planted_in_job("drop-output"):
            self._reader.read_line(line)
        if self._awaited_line is not None and self._awaited_line.search(line):
            self._awaited_line = None
            self._context.log(f"has printed: {line[:200]}", LogLevel.PRINTED)

    def _on_tick(self) -> str | None:
        """Report progress; return a reason to stop after another rank's program failed."""
        self._context.progress(Activity.RUNNING, self._lines, 0)
        self._report_live()
        self._read_messages()
        if self._other_failure is None:
            return None
        self._patience -= 1
        return self._other_failure if self._patience < 0 else None

    def _report_live(self) -> None:
        if self._is_read:
            for name, value in self._live.items():
                self._context.metric(name, value)
            self._live.clear()

    def _read_messages(self, seconds: float = 0.0) -> set[int]:
        """Read messages about other ranks; return the ranks with a printed awaited line."""
        printed = set()
        for message in self._console.read_program_reports(seconds):
            if message["reply"] == LogLevel.BROKEN_OFF:
                reason = f"on rank {message['rank']} {message['message']}"
                self._other_failure = self._other_failure or reason
            else:
                printed.add(int(message["rank"]))
        return printed

    def _compile_awaited_line(self) -> re.Pattern[str] | None:
        awaited = self._awaited
        if awaited is None or awaited.printing_rank != self._context.world.rank:
            return None
        return re.compile(awaited.pattern)

    def _wait_for_turn(self) -> str | None:
        """Wait for the line of another rank; return the reason if it does not come."""
        if self._awaited is None or self._awaited.waiting_rank != self._context.world.rank:
            return None
        if not self._context.world.hosts:
            raise CannotRunError("wait_for needs the console: a batch job's ranks hear no others")
        awaited_rank = self._awaited.printing_rank
        while awaited_rank not in self._read_messages(TICK):
            if self._other_failure is not None:
                return self._other_failure
            self._context.progress(Activity.WAITING, 0, 0)
        return None

    def _report(self, end: ProgramEnd | None, stop_reason: str | None) -> None:
        """Report time, numbers and checks, first the exit code, which is the likely cause."""
        context = self._context
        output = self._reader.finish()
        if end is not None:
            context.samples("time_ms", [end.seconds * 1e3])
        self._check_exit(end, stop_reason)
        if self._awaited_line is not None:
            pattern = self._awaited_line.pattern
            name = self._command.argv[0]
            self._break_off(f"{name} ended, and had printed no line that matches {pattern!r}")
        self._report_numbers(output)
        self._check_output(output)

    def _check_exit(self, end: ProgramEnd | None, stop_reason: str | None) -> None:
        context = self._context
        program = self._command.argv[0]
        name = f"{program} of rank {context.world.rank}"
        if end is None or stop_reason is not None:
            end_text = "was not started" if end is None else "was ended"
            # Less than the error of any exit code, because this is only a consequence.
            context.check("exit_code", 0.5, 0.0, f"{name} {end_text}, since {stop_reason}")
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

    def _break_off(self, reason: str) -> None:
        self.failed = True
        self._context.log(reason, LogLevel.BROKEN_OFF)

    def _report_numbers(self, output: OutputResult) -> None:
        if not self._is_read:
            return
        context = self._context
        for name, values in output.samples.items():
            context.samples(name, values)
        for point in output.points:
            context.metric(point.metric, point.value, **point.labels)
        for name, value in output.values.items():
            if name not in output.samples:
                context.metric(name, value)

    def _check_output(self, output: OutputResult) -> None:
        context = self._context
        check_names = self._context.entry.list_checks(self._context.params)
        patterns = {pattern.pattern for pattern in self._expected.must}
        missing = output.missing
        unmatched = [f"no line matches {name!r}" for name in missing if name in patterns]
        missing_numbers = [f"it has not printed {name}" for name in missing if name not in patterns]
        forbidden = [f"it has printed: {line[:200]}" for line in output.forbidden]
        if not self._is_read:
            unmatched = []
            missing_numbers = []
        for name, problems in (
            ("never", forbidden),
            ("must", unmatched),
            ("output", missing_numbers),
        ):
            if name in check_names:
                context.check(name, float(len(problems)), 0.0, problems[0] if problems else "")


class _FileState(NamedTuple):
    """A file's inode, size in bytes, and time of modification in ns."""

    inode: int
    size: int
    modified_ns: int


class ResultsFile:
    """The file with a program's results, of which only new lines count."""

    def __init__(self, context: Context, command: ProgramCommand) -> None:
        params = context.params
        world = context.world
        name = context.read_params(ProgramParams).reads
        filled_in = name and fill_placeholders(
            name, lambda placeholder: resolve_placeholder(placeholder, params, world)
        )
        self._path = Path(command.cwd or ".", filled_in) if filled_in else None
        self._before = self._read_state()

    def lines(self) -> list[str]:
        """Return the lines written since the start; empty if the file is not read."""
        now = self._read_state()
        before = self._before
        if self._path is None or now is None or now == before:
            return []
        first_new_byte = 0
        if before is not None and now.inode == before.inode and now.size > before.size:
            first_new_byte = before.size
        splitter = LineSplitter()
        with self._path.open("rb") as file:
            file.seek(first_new_byte)
            return [*splitter.feed(file.read(_MOST_READ)), *splitter.flush()]

    def _read_state(self) -> _FileState | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return _FileState(status.st_ino, status.st_size, status.st_mtime_ns)
