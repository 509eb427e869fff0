"""Exit codes and the errors that end a command with one of them.

SpbenchError            one sentence for the user, and an exit code
├── UsageError          2: a wrong argument, hostfile or suite
│   └── SuiteError      2: all errors of one suite file, each with its place
├── MissingError        3: the environment lacks a launcher, a host or a package
├── FailedRunError      4: a run could not go on (its folder cannot be written, say)
├── NothingSelected     5
└── StoppedError        124, 130, 143: ended before it had begun
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum

import spbench_core
from spbench_core.quantities import format_quantity


class ExitCode(IntEnum):
    """The exit status of a command."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    MISSING = 3
    ERROR = 4
    NOTHING = 5
    UNJUDGED = 6
    BUDGET = 124
    INTERRUPTED = 130
    TERMINATED = 143


class SpbenchError(Exception):
    """An error for the user: one sentence that says what is wrong, where, and what to do."""

    exit_code = ExitCode.ERROR


class UsageError(SpbenchError):
    """An argument, a hostfile or a suite is wrong."""

    exit_code = ExitCode.USAGE


class MissingError(SpbenchError):
    """The environment lacks a launcher, a host or a package."""

    exit_code = ExitCode.MISSING


class FailedRunError(SpbenchError):
    """A run could not go on."""


class NothingSelected(SpbenchError):  # noqa: N818 - it is an outcome, not a mistake
    """No case is left to run."""

    exit_code = ExitCode.NOTHING


class StoppedError(SpbenchError):
    """A run was ended before its first job."""

    def __init__(self, sentence: str, exit_code: ExitCode) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One error of a file: its place (1-based) and a message."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: error: {self.message}"


class SuiteError(UsageError):
    """All errors of one suite file, in the order of their places."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: Sequence[Diagnostic] = sorted(diagnostics)
        super().__init__(format_error_list(list(map(str, self.diagnostics))))


MOST_ERRORS = 50
MOST_CHARACTERS = 1000
"""Of the errors of one file so many are told, and of each so many letters."""


def format_error_list(errors: Sequence[str]) -> str:
    """Return the errors of a file, one a line: the first of them where there are very many."""
    lines = [
        line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} ..." for line in errors
    ]
    more = len(lines) - MOST_ERRORS
    if more > 0:
        lines = [*lines[:MOST_ERRORS], f"and {format_quantity(more, 'more error')}"]
    return "\n".join(lines)


_PACKAGES = tuple(
    os.path.join(os.path.dirname(file), "") for file in (__file__, spbench_core.__file__)
)
"""The folders of spbench's packages; a checkout or a user's folder may have the same name."""


def describe_defect(error: BaseException) -> str:
    """Return a message for an exception that spbench does not expect.

    It names the innermost line of spbench's packages that the exception passed through, if any.
    """
    location = ""
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        for package in _PACKAGES:
            if file.startswith(package):
                location = f" at {file.removeprefix(package)}:{frame.tb_lineno}"
        frame = frame.tb_next
    text = " ".join(str(error).split())[:200]
    return f"a defect of spbench{location}: {type(error).__name__}: {text}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the nearest known word, or an empty text.

    The last part of a dotted name, such as ``compute.memory``, counts most.
    """
    names = list(known)
    part = word.rpartition(".")[2]
    sharing = [name for name in names if part in name.split(".")] if part != word else []
    near = sharing or get_close_matches(word, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
