"""``spbench validate``: every error of suites, in one pass over each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from spbench.errors import ExitCode, SuiteError, UsageError
from spbench.record.number_formatting import counted
from spbench.suites.loader import load


def plain_suites(words: Sequence[str]) -> list[Path]:
    """Return the suites of a command line that validates them and has no option; else nothing.

    Such a line, which editors and commit hooks wait for, needs no library to be read.
    """
    command, *suites = words or ("",)
    if command != "validate" or any(word.startswith("-") for word in suites):
        return []
    return [Path(word) for word in suites]


def validate(
    suites: Sequence[Path], overrides: Sequence[str] = (), *, verbose: bool = False
) -> ExitCode:
    """Check suites; print the number of cases of each on stdout, and all errors on stderr."""
    wrong = []
    for path in suites:
        try:
            suite = load(path, tuple(overrides))
        except SuiteError as error:
            wrong.append(str(error))
            continue
        except UsageError as error:
            wrong.append(f"spbench: error: {error}")
            continue
        print(f"{path}: {counted(len(suite.cases), 'case')}, no errors")
        for case in suite.cases if verbose else ():
            ranks = "all slots" if case.np is None else counted(case.np, "rank")
            print(f"  {case.id}: {case.benchmark}, {ranks}")
    if wrong:
        sys.stderr.write("\n".join(wrong) + "\n")
        return ExitCode.USAGE
    return ExitCode.PASSED
