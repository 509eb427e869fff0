"""The check of cases by the workers before a launch."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from spbench.errors import Diagnostic, SuiteError
from spbench.launch.program import find_interpreter, wrap_argv
from spbench.launch.reaping import kill_and_wait
from spbench.launch.survey.progress import Progress, ignore_progress
from spbench.suites.case import Case, Suite
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import Mark, Node, parse_yaml
from spbench_core.number_text import format_quantity

CHECKER = ("-m", "spbench_workers.checking")
_ANSWER_MARKER = "spbench-check "
_MISSING_MODULE = "missing_module"
_Reason = str | Mapping[str, str] | None
TIMEOUT = 300.0
PROGRESS_DELAY = 2.0
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class _NoAnswerError(Exception):
    """A process gave no answer, for the reason in the message."""


async def check_cases(
    suite: Suite,
    cases: Iterable[Case],
    environ: Mapping[str, str],
    progress: Progress = ignore_progress,
    *,
    on_other_hosts: bool = False,
    timeout_seconds: float = TIMEOUT,
    progress_seconds: float = PROGRESS_DELAY,
) -> list[str]:
    """Reject cases that the workers cannot run, such as with an invalid network.

    A process on this host checks them, with the Python, the setup lines and the variables of the
    case's launch. It is not started if no benchmark requires a check.

    Args:
        suite: The suite of the cases, for the positions of errors.
        cases: The cases; those of benchmarks without a check are left out.
        environ: The console's variables.
        progress: Takes a line if the check takes long.
        on_other_hosts: Whether the cases may run on other hosts, which may have other modules.
        timeout_seconds: The time for the cases of one process.
        progress_seconds: The time after which ``progress`` takes a line.

    Returns:
        A message for each process that gave no answer, so that its cases are not checked, and with
        ``on_other_hosts`` for each case that needs a module which this host does not have.

    Raises:
        SuiteError: Cases cannot run. It has a line for each case, with the reason.
    """
    failures: list[tuple[Case, str]] = []
    missing: list[tuple[Case, str]] = []
    unchecked = []
    for settings, group in _group_by_settings(cases):
        check = _check_group(settings, group, environ, progress, progress_seconds)
        try:
            reasons = await asyncio.wait_for(check, timeout_seconds)
        except TimeoutError:
            program = _describe_interpreter(settings)
            message = f"{program} gave no answer within {timeout_seconds:g} s"
        except _NoAnswerError as error:
            message = str(error)
        else:
            for case, reason in zip(group, reasons, strict=True):
                if isinstance(reason, str):
                    failures.append((case, reason))
                elif reason is not None and on_other_hosts:
                    missing.append((case, reason[_MISSING_MODULE]))
                elif reason is not None:
                    failures.append((case, reason[_MISSING_MODULE]))
            continue
        count = format_quantity(len(group), "case")
        unchecked.append(f"the networks of {count} are not checked: {message}")
    if failures:
        raise SuiteError(_make_diagnostics(suite, failures))
    return [*_describe_missing(suite, missing), *unchecked]


def _describe_missing(suite: Suite, missing: Sequence[tuple[Case, str]]) -> Iterator[str]:
    """Yield a message for each case without a module, at the position of its network."""
    for (case, reason), mark in zip(missing, _find_marks(suite, missing), strict=True):
        position = f"{suite.path}:{mark.line}:{mark.column}"
        yield f"{position}: case {case.id} is not checked: {reason} (other hosts may have it)"


def _make_diagnostics(suite: Suite, failures: Sequence[tuple[Case, str]]) -> Iterator[Diagnostic]:
    for (case, reason), mark in zip(failures, _find_marks(suite, failures), strict=True):
        yield Diagnostic(str(suite.path), mark.line, mark.column, f"case {case.id}: {reason}")


def _find_marks(suite: Suite, cases: Sequence[tuple[Case, str]]) -> list[Mark]:
    """Return the positions of the networks of cases; the suite is parsed once."""
    if not cases:
        return []
    root = parse_yaml(suite.text).root
    return [_find_mark(root, case) for case, _ in cases]


def _find_mark(root: Node, case: Case) -> Mark:
    """Return the position of a case's network in the suite, or of the case."""
    entries = root.find_node(("cases",))
    for _, entry in entries.list_children().values() if entries is not None else ():
        name = entry.find_node(("name",))
        if name is None or name.data != case.name:
            continue
        for section in ("params", "matrix", "zip"):
            network = entry.find_node((section, "network"))
            if network is None:
                continue
            swept = [node for _, node in network.list_children().values()]
            matching = (node for node in swept if node.data == case.params.get("network"))
            return next(matching, network).mark
        return entry.mark
    return Mark(case.line, 1)


def _group_by_settings(cases: Iterable[Case]) -> Iterator[tuple[LaunchSettings, list[Case]]]:
    """Yield the cases that require a check, grouped by equal settings."""
    groups: list[tuple[LaunchSettings, list[Case]]] = []
    for case in cases:
        if case.entry.checked_in is None:
            continue
        for settings, group in groups:
            if settings == case.launch:
                group.append(case)
                break
        else:
            groups.append((case.launch, [case]))
    yield from groups


async def _check_group(
    settings: LaunchSettings,
    cases: list[Case],
    environ: Mapping[str, str],
    progress: Progress,
    progress_seconds: float,
) -> list[_Reason]:
    """Return for each case why it cannot run, or None."""
    argv = wrap_argv(settings, (find_interpreter(settings), *CHECKER))
    requests = [{"benchmark": case.benchmark, "params": dict(case.params)} for case in cases]
    env = {**environ, **settings.env}
    check = asyncio.ensure_future(_run_program(argv, env, json.dumps(requests)))
    try:
        done, _ = await asyncio.wait({check}, timeout=progress_seconds)
        if not done:
            progress(f"importing the networks of {format_quantity(len(cases), 'case')}")
        stdout, last_line = await check
    except OSError as error:
        stdout = ""
        last_line = f"cannot start {argv[0]}: {error.strerror}"
    finally:
        await _cancel(check)
    for line in stdout.splitlines():
        _, marker, answer_text = line.partition(_ANSWER_MARKER)
        if marker:
            reasons: list[_Reason] = json.loads(answer_text)
            return reasons
    missing = _NO_MODULE.search(last_line)
    if missing:
        raise _NoAnswerError(f"{_describe_interpreter(settings)} has no {missing[1]}")
    raise _NoAnswerError(last_line)


def _describe_interpreter(settings: LaunchSettings) -> str:
    container = " in its container" if settings.container else ""
    return f"the workers' Python {find_interpreter(settings)}{container}"


async def _cancel(work: asyncio.Future[tuple[str, str]]) -> None:
    # if the caller is cancelled, the process must end before it
    if not work.done():
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _run_program(argv: tuple[str, ...], env: Mapping[str, str], text: str) -> tuple[str, str]:
    """Return a program's stdout and the last line of its stderr; cancelling kills it."""
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        stdout, stderr = await process.communicate(text.encode())
    finally:
        await kill_and_wait(process)
    lines = stderr.decode(errors="replace").strip().splitlines()
    status = f"{argv[-len(CHECKER) - 1]} ended with exit status {process.returncode}"
    return stdout.decode(errors="replace"), lines[-1] if lines else status
