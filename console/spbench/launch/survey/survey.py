"""The survey of a run's hosts: each is asked what it has, all of them at once."""

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
from spbench.launch.reaping import reaped
from spbench.launch.survey.facts import HostFacts, facts_of, mute, unreached
from spbench.launch.survey.progress import Say, nobody, progress
from spbench.launch.survey.question import MARK, asked_interpreter, program, question
from spbench.launch.survey.reach import AT_ONCE, DEADLINE, SSH, reason
from spbench.suites.settings import LaunchSettings

_LONGEST = 2**20
_SSH_FAILED = 255
_GRACE = 0.5


class _SilentError(Exception):
    """A command that ended without an answer: its exit status, and its last words."""

    def __init__(self, status: int, last: str) -> None:
        super().__init__(f"exit status {status}{last and f': {last}'}")
        self.status = status
        self.last = last


async def survey(
    hosts: Iterable[str], settings: LaunchSettings, env: Mapping[str, str], say: Say = nobody
) -> AsyncIterator[HostFacts]:
    """Yield the facts of each host as soon as it answers.

    This machine's own names need no ssh. At most 64 hosts are asked at once, each for 8 s. To end
    early, close the iterator (`contextlib.aclosing`): then what still asks ends too.

    Args:
        hosts: Names; those that come twice are asked once.
        settings: The interpreter of the ranks, and what it runs behind.
        env: The environment of ssh, and of the question to this machine.
        say: Takes a line on how far it is, every second.

    Raises:
        UsageError: ``container`` cannot be split into words.
    """
    argv = question(settings)
    python = asked_interpreter(settings)
    gate = asyncio.Semaphore(AT_ONCE)

    async def facts(host: str) -> HostFacts:
        async with gate:
            return await _facts(host, python, argv, settings, env)

    tasks = [asyncio.create_task(facts(host)) for host in dict.fromkeys(hosts)]
    try:
        async with progress(len(tasks), say) as asked:
            for answered in asyncio.as_completed(tasks):
                facts_there = await answered
                asked.count(well=facts_there.status.is_well)
                yield facts_there
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _facts(
    host: str,
    python: str,
    argv: Sequence[str],
    settings: LaunchSettings,
    env: Mapping[str, str],
) -> HostFacts:
    local = is_local(host)
    words = argv if local else (*SSH, host, shlex.join(argv))
    try:
        async with asyncio.timeout(DEADLINE):
            try:
                answer, clock_s = await _asked(words, settings, env)
            except _SilentError as silence:
                if local or silence.status != _SSH_FAILED:
                    return mute(host, python, str(silence))
                return unreached(host, await reason(host, silence.last or str(silence)))
    except TimeoutError:
        why = f"no answer in {DEADLINE:g} s"
        return mute(host, python, why) if local else unreached(host, why)
    except OSError as error:
        return unreached(host, f"{words[0]} cannot run here ({error.strerror})")
    return facts_of(host, python, answer, clock_s)


async def _asked(
    words: Sequence[str], settings: LaunchSettings, env: Mapping[str, str]
) -> tuple[dict[str, Any], float | None]:
    """Return the answer, and how far the clock there is ahead of the one here, in seconds."""
    # a file, not a pipe: a master connection that ssh leaves behind keeps its stderr open
    with tempfile.TemporaryFile() as errors:
        async with _started(words, env, errors) as process:
            answer = await _answer(process, program(settings))
            if answer is not None:
                return answer, await _clock(process)
            status = await process.wait()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        raise _SilentError(status, lines[-1].strip() if lines else "")


@asynccontextmanager
async def _started(
    words: Sequence[str], env: Mapping[str, str], errors: IO[bytes]
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=PIPE,
        stdout=PIPE,
        stderr=errors,
        env=env,
        start_new_session=True,
        limit=_LONGEST,
    )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    # ssh that is killed outright leaves the socket of a shared connection behind
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, signal.SIGTERM)
                await asyncio.wait_for(process.wait(), _GRACE)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await reaped(process)


async def _clock(process: Process) -> float | None:
    """Return how far the host's clock is ahead, were both ways of the question equally long."""
    asked = time.time()
    answer = await _answer(process, b"\n")
    if answer is None:
        return None
    ahead = float(answer["clock"]) - (asked + time.time()) / 2
    return round(ahead, 3) + 0.0  # which makes -0.0 a 0.0


async def _answer(process: Process, asking: bytes) -> dict[str, Any] | None:
    """Return the next marked line of what a host says; None where it ends first."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(asking)
    while line := await _line(process.stdout):
        _, mark, text = line.decode(errors="replace").partition(MARK)
        with suppress(ValueError):  # no JSON behind the mark: some other program's words
            if mark:
                found: dict[str, Any] = json.loads(text)
                return found
    return None


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, an empty one for one of more than 1 MiB, and nothing at the end."""
    try:
        return await stream.readline()
    except ValueError:
        return b"\n"
