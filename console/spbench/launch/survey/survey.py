"""The survey of a run's hosts, which are queried for hardware and software."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any

from spbench.launch.hosts.names import is_local
from spbench.launch.reaping import wait_for_exit
from spbench.launch.survey.command import (
    MARK,
    build_survey_command,
    build_survey_input,
    find_survey_interpreter,
)
from spbench.launch.survey.facts import HostFacts, make_silent, make_unreachable, parse_facts
from spbench.launch.survey.progress import Progress, ignore_progress, report_progress
from spbench.launch.survey.reach import ANSWER_TIMEOUT, MAX_CONCURRENT, SSH, explain_unreachable
from spbench.suites.settings import LaunchSettings

_MAX_LINE_BYTES = 2**20
_SSH_FAILED = 255
_GRACE_SECONDS = 0.5


class _SilentError(Exception):
    """A command ended without an answer: its exit status and last error line."""

    def __init__(self, status: int, last_error_line: str) -> None:
        super().__init__(f"exit status {status}{last_error_line and f': {last_error_line}'}")
        self.status = status
        self.last_error_line = last_error_line


async def survey_hosts(
    hosts: Iterable[str],
    settings: LaunchSettings,
    env: Mapping[str, str],
    progress: Progress = ignore_progress,
    *,
    timeout_seconds: float = ANSWER_TIMEOUT,
) -> AsyncIterator[HostFacts]:
    """Yield the facts of each host as soon as it answers.

    This machine needs no ssh. At most 64 hosts are queried at once. To end early, close the
    iterator (`contextlib.aclosing`), which also ends queries that still run.

    Args:
        hosts: Names; duplicates are queried once.
        settings: The interpreter of the ranks, with setup lines and container.
        env: The environment of ssh, and of the program on this machine.
        progress: Takes a line on the progress every second.
        timeout_seconds: Seconds that each host has to answer.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    argv = build_survey_command(settings)
    python = find_survey_interpreter(settings)
    query_limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def query(host: str) -> HostFacts:
        async with query_limit:
            return await _query_host(host, python, argv, settings, env, timeout_seconds)

    tasks = [asyncio.create_task(query(host)) for host in dict.fromkeys(hosts)]
    try:
        async with report_progress(len(tasks), progress) as answer_counts:
            for task in asyncio.as_completed(tasks):
                facts = await task
                answer_counts.count(succeeded=facts.status.is_fit)
                yield facts
    finally:
        for task in tasks:
            task.cancel()
        # each cancelled query ends its process first
        await asyncio.gather(*tasks, return_exceptions=True)


async def _query_host(
    host: str,
    python: str,
    argv: Sequence[str],
    settings: LaunchSettings,
    env: Mapping[str, str],
    timeout_seconds: float,
) -> HostFacts:
    is_this_machine = is_local(host)
    command = argv if is_this_machine else (*SSH, host, shlex.join(argv))
    try:
        async with asyncio.timeout(timeout_seconds):
            try:
                answer, clock_s = await _run_survey(command, settings, env)
            except _SilentError as error:
                if is_this_machine or error.status != _SSH_FAILED:
                    return make_silent(host, python, str(error))
                reason = await explain_unreachable(host, error.last_error_line or str(error))
                return make_unreachable(host, reason)
    except TimeoutError:
        reason = f"no answer in {timeout_seconds:g} s"
        return (
            make_silent(host, python, reason) if is_this_machine else make_unreachable(host, reason)
        )
    except OSError as error:
        return make_unreachable(host, f"{command[0]} cannot run here ({error.strerror})")
    return parse_facts(host, python, answer, clock_s)


async def _run_survey(
    command: Sequence[str], settings: LaunchSettings, env: Mapping[str, str]
) -> tuple[dict[str, Any], float | None]:
    """Return the answer, and the seconds by which the host's clock is ahead."""
    # a file, not a pipe: a master connection that ssh leaves behind keeps its stderr open
    with tempfile.TemporaryFile() as stderr:
        async with _start_process(command, env, stderr) as process:
            answer = await _request_answer(process, build_survey_input(settings))
            if answer is not None:
                return answer, await _measure_clock(process)
            exit_status = await process.wait()
        stderr.seek(0)
        error_lines = stderr.read().decode(errors="replace").strip().splitlines()
        raise _SilentError(exit_status, error_lines[-1].strip() if error_lines else "")


@asynccontextmanager
async def _start_process(
    command: Sequence[str], env: Mapping[str, str], stderr: IO[bytes]
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        env=env,
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
    )
    try:
        yield process
    finally:
        await _end_process(process)


async def _end_process(process: Process) -> None:
    # SIGTERM first: a killed ssh leaves the socket of a shared connection behind
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, signal.SIGTERM)
                await asyncio.wait_for(process.wait(), _GRACE_SECONDS)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await wait_for_exit(process)


async def _measure_clock(process: Process) -> float | None:
    """Return the seconds by which the host's clock is ahead.

    This assumes that both ways take equally long.
    """
    sent_at = time.time()
    answer = await _request_answer(process, b"\n")
    if answer is None:
        return None
    ahead_s = float(answer["clock"]) - (sent_at + time.time()) / 2
    return round(ahead_s, 3) + 0.0  # turns -0.0 into 0.0


async def _request_answer(process: Process, request: bytes) -> dict[str, Any] | None:
    """Send a request and return the next marked line; None at the end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    while line := await _read_line(process.stdout):
        _, mark, text = line.decode(errors="replace").partition(MARK)
        with suppress(ValueError):  # not JSON after the mark: the line is from another program
            if mark:
                answer: dict[str, Any] = json.loads(text)
                return answer
    return None


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, empty if it is longer than 1 MiB; nothing at the end."""
    try:
        return await stream.readline()
    except ValueError:
        return b"\n"
