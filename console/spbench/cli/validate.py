"""``spbench validate``: every error of suites, in one pass over each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spbench.errors import ExitCode, SuiteError, UsageError
from spbench.record.number_formatting import counted
from spbench.suites.loader import load


def validate(
    suites: Sequence[Path], overrides: Sequence[str] = (), *, verbose: bool = False
) -> ExitCode:
    """Check suites; print the number of cases of each on stdout, and all errors on stderr.

    Where nobody reads them any more, as behind `| head`, the suites are checked all the same.
    """
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
        with suppress(BrokenPipeError):
            print(f"{path}: {counted(len(suite.cases), 'case')}, no errors")
            for case in suite.cases if verbose else ():
                ranks = "all slots" if case.np is None else counted(case.np, "rank")
                print(f"  {case.id}: {case.benchmark}, {ranks}")
    if wrong:
        with suppress(BrokenPipeError):
            sys.stderr.write("\n".join(wrong) + "\n")
        return ExitCode.USAGE
    return ExitCode.PASSED
