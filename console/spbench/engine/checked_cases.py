"""The check of cases by the workers before a launch, for benchmarks that ask for one."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from spbench.errors import UsageError
from spbench.launch.program import interpreter, wrapped
from spbench.launch.reaping import killed
from spbench.launch.survey.progress import Say
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings

CHECKER = ("-m", "spbench_workers.checking")
_MARK = "spbench-check "
_PATIENCE = 300.0
_SILENCE = 2.0
_MOST_TOLD = 8


async def check_cases(
    suite: Path, cases: Iterable[Case], environ: Mapping[str, str], say: Say
) -> None:
    """Refuse cases that the workers cannot run, such as of a network that cannot be imported.

    They are asked in a process of its own, on this host, with the Python, the setup lines and the
    variables of the case's launch. Where that cannot be, ``say`` is told, and ranks find out.

    Args:
        suite: The file of the cases, for errors.
        cases: The cases; those of benchmarks that ask for no check are left out.
        environ: The console's own variables.
        say: Takes lines on how far it is.

    Raises:
        UsageError: Cases cannot run; a line for each, with what speaks against it.
    """
    told: list[tuple[int, str]] = []
    for settings, alike in _by_settings(cases):
        for case, wrong in zip(alike, await _answers(settings, alike, environ, say), strict=True):
            if wrong is not None:
                told.append((case.line, f"{suite}:{case.line}: case {case.id}: {wrong}"))
    if told:
        lines = [line for _, line in sorted(told)]
        more = [f"and {len(lines) - _MOST_TOLD} more"] if len(lines) > _MOST_TOLD else []
        raise UsageError("\n".join([*lines[:_MOST_TOLD], *more]))


def _by_settings(cases: Iterable[Case]) -> Iterator[tuple[LaunchSettings, list[Case]]]:
    """Yield the cases to be checked, those with alike settings together."""
    found: list[tuple[LaunchSettings, list[Case]]] = []
    for case in cases:
        if case.entry.checked_in is None:
            continue
        for settings, alike in found:
            if settings == case.launch:
                alike.append(case)
                break
        else:
            found.append((case.launch, [case]))
    yield from found


async def _answers(
    settings: LaunchSettings, cases: list[Case], environ: Mapping[str, str], say: Say
) -> list[str | None]:
    """Return what speaks against each case; nothing where nobody answers."""
    argv = wrapped(settings, (interpreter(settings), *CHECKER))
    asked = [{"benchmark": case.benchmark, "params": dict(case.params)} for case in cases]
    work = asyncio.ensure_future(_output(argv, {**environ, **settings.env}, json.dumps(asked)))
    try:
        done, _ = await asyncio.wait({work}, timeout=_SILENCE)
        if not done:
            say(f"importing the networks of {len(cases)} case{'s' if len(cases) > 1 else ''}")
        stdout, last = await asyncio.wait_for(work, _PATIENCE)
    except TimeoutError:
        stdout, last = "", f"no answer within {_PATIENCE:g} s"
    except OSError as error:
        stdout, last = "", f"{argv[0]}: {error.strerror}"
    finally:
        await _ended(work)
    for line in stdout.splitlines():
        _, mark, answers = line.partition(_MARK)
        if mark:
            found: list[str | None] = json.loads(answers)
            return found
    say(f"networks cannot be checked before the launch ({last}); ranks will")
    return [None] * len(cases)


async def _ended(work: asyncio.Future[tuple[str, str]]) -> None:
    """End the process of a caller that is cancelled."""
    if not work.done():
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _output(argv: tuple[str, ...], env: Mapping[str, str], text: str) -> tuple[str, str]:
    """Return what a program prints, and the last line of its errors; it ends with the caller."""
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        stdout, stderr = await process.communicate(text.encode())
    finally:
        await killed(process)
    lines = stderr.decode(errors="replace").strip().splitlines()
    status = f"exit status {process.returncode}"
    return stdout.decode(errors="replace"), lines[-1] if lines else status
