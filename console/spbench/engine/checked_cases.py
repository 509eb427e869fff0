"""The check of cases by the workers before a launch, for benchmarks that ask for one."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from spbench.errors import Diagnostic, SuiteError
from spbench.launch.program import interpreter, wrapped
from spbench.launch.reaping import killed
from spbench.launch.survey.progress import Say, nobody
from spbench.suites.case import Case, Suite
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import Mark, Node, parse_yaml
from spbench_core.quantities import format_quantity

CHECKER = ("-m", "spbench_workers.checking")
_MARK = "spbench-check "
_PATIENCE = 300.0
_SILENCE = 2.0
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


async def check_cases(
    suite: Suite, cases: Iterable[Case], environ: Mapping[str, str], say: Say = nobody
) -> list[str]:
    """Refuse cases that the workers cannot run, such as of a network that cannot be imported.

    A process on this host checks them, with the Python, the setup lines and the variables of the
    case's launch. It is not started if no benchmark asks for a check.

    Args:
        suite: The suite of the cases, for the places of errors.
        cases: The cases; those of benchmarks that ask for no check are left out.
        environ: The console's own variables.
        say: Takes lines on how far it is.

    Returns:
        A message for each process that gave no answer; its cases are not checked.

    Raises:
        SuiteError: Cases cannot run; it has a line for each case, with the reason.
    """
    wrong: list[tuple[Case, str]] = []
    unchecked = []
    for settings, alike in _by_settings(cases):
        answers = await _answers(settings, alike, environ, say)
        if isinstance(answers, str):
            count = format_quantity(len(alike), "case")
            unchecked.append(f"the networks of {count} are not checked: {answers}")
            continue
        pairs = zip(alike, answers, strict=True)
        wrong += [(case, answer) for case, answer in pairs if answer is not None]
    if wrong:
        raise SuiteError(_diagnostics(suite, wrong))
    return unchecked


def _diagnostics(suite: Suite, wrong: Iterable[tuple[Case, str]]) -> Iterator[Diagnostic]:
    root = parse_yaml(suite.text).root
    for case, sentence in wrong:
        mark = _place(root, case)
        yield Diagnostic(str(suite.path), mark.line, mark.column, f"case {case.id}: {sentence}")


def _place(root: Node, case: Case) -> Mark:
    """Return the position of a case's network in the suite; else that of the case."""
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
            same = (node for node in swept if node.data == case.params.get("network"))
            return next(same, network).mark
        return entry.mark
    return Mark(case.line, 1)


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
) -> list[str | None] | str:
    """Return for each case why it cannot run, or None; a single message if there is no answer."""
    argv = wrapped(settings, (interpreter(settings), *CHECKER))
    asked = [{"benchmark": case.benchmark, "params": dict(case.params)} for case in cases]
    work = asyncio.ensure_future(_output(argv, {**environ, **settings.env}, json.dumps(asked)))
    try:
        done, _ = await asyncio.wait({work}, timeout=_SILENCE)
        if not done:
            say(f"importing the networks of {format_quantity(len(cases), 'case')}")
        stdout, last = await asyncio.wait_for(work, _PATIENCE)
    except TimeoutError:
        stdout = ""
        last = f"{_python(settings)} gave no answer within {_PATIENCE:g} s"
    except OSError as error:
        stdout = ""
        last = f"cannot start {argv[0]}: {error.strerror}"
    finally:
        await _ended(work)
    for line in stdout.splitlines():
        _, mark, answers = line.partition(_MARK)
        if mark:
            found: list[str | None] = json.loads(answers)
            return found
    missing = _NO_MODULE.search(last)
    return f"{_python(settings)} has no {missing[1]}" if missing else last


def _python(settings: LaunchSettings) -> str:
    """Return the name of the workers' interpreter for messages."""
    inside = " in its container" if settings.container else ""
    return f"the workers' Python {interpreter(settings)}{inside}"


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
    status = f"{argv[-len(CHECKER) - 1]} ended with exit status {process.returncode}"
    return stdout.decode(errors="replace"), lines[-1] if lines else status
