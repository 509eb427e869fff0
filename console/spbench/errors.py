"""Exit codes and the errors that end a command with one of them.

SpbenchError            a message for the user, and an exit code
├── UsageError          2: a wrong argument, hostfile or suite
│   └── SuiteError      2: all errors of one suite file, each with line and column
├── MissingError        3: the environment lacks a launcher, a host or a package
│   └── LauncherMissingError  3: the launcher of the settings is not installed
├── FailedRunError      4: a run could not continue (for example, its folder is not writable)
├── NothingSelected     5
└── StoppedError        124, 130, 143: the run was stopped before its first job
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, IntEnum

import spbench_core
from spbench_core.number_text import format_quantity

MOST_ERRORS = 50
"""The number of errors of one file that are printed."""
MOST_CHARACTERS = 1000
"""The number of characters of an error that are printed."""
_MAX_SUGGESTIONS = 3
_PASTED_WORD = re.compile(r"(\S{60})\S{80,}(\S{20})")
_PACKAGES = tuple(
    os.path.join(os.path.dirname(file), "") for file in (__file__, spbench_core.__file__)
)
"""The folders of spbench's packages; a user's folder may have the same name."""


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


class Advice(Enum):
    """A remedy with options of the command line; the TUI names its keys instead."""

    ONLY_SHOW_LINES = "use it with --dry-run or spbench command"
    LEAVE_HOSTS_OUT = (
        "or leave hosts out with --exclude-hosts, or all of these with --skip-bad-hosts"
    )
    FIX_OR_SKIP_HOSTS = "spbench doctor says how to fix it, --skip-bad-hosts continues without them"


class SpbenchError(Exception):
    """An error for the user; the message names the problem, its place and a remedy."""

    exit_code = ExitCode.ERROR


class UsageError(SpbenchError):
    """An argument, a hostfile or a suite is wrong."""

    exit_code = ExitCode.USAGE


class MissingError(SpbenchError):
    """The environment lacks a launcher, a host or a package."""

    exit_code = ExitCode.MISSING


class LauncherMissingError(MissingError):
    """The launcher that was asked for is not installed here."""


class FailedRunError(SpbenchError):
    """A run could not continue."""


class NothingSelected(SpbenchError):  # noqa: N818 - an outcome, not a mistake
    """No case is left to run."""

    exit_code = ExitCode.NOTHING


class StoppedError(SpbenchError):
    """A run was stopped before its first job."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One error of a file: line and column (1-based) and a message.

    Words of the message that are too long to be typed are cut.
    """

    file: str
    line: int
    column: int
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _PASTED_WORD.sub(r"\1...\2", self.message))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: error: {self.message}"


class SuiteError(UsageError):
    """All errors of one suite file, by line and column."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: Sequence[Diagnostic] = sorted(diagnostics)
        super().__init__(format_error_list(list(map(str, self.diagnostics))))


def format_error_list(errors: Sequence[str]) -> str:
    """Return the first errors of a file, one per line, and the number of further ones."""
    lines = [
        line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} ..." for line in errors
    ]
    more = len(lines) - MOST_ERRORS
    if more > 0:
        lines = [*lines[:MOST_ERRORS], f"and {format_quantity(more, 'more error')}"]
    return "\n".join(lines)


def describe_defect(error: BaseException) -> str:
    """Return a message for an unexpected exception.

    It names the innermost line of spbench's packages in the traceback, if any.
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


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the nearest known words, or an empty text.

    The names of a group come first, up to three: ``compute`` suggests ``compute.gemm``. The last
    part of a dotted name, such as ``compute.memory``, counts more than the others.
    """
    names = list(candidates)
    last_part = word.rpartition(".")[2]
    matches = [name for name in names if name.startswith(f"{word}.")][:_MAX_SUGGESTIONS]
    if not matches and last_part != word:
        matches = [name for name in names if last_part in name.split(".")][:1]
    if not matches:
        matches = get_close_matches(word, names, n=1)
    if not matches:
        return ""
    (*others, last) = matches
    return f" (did you mean {' or '.join(filter(None, [', '.join(others), last]))}?)"
