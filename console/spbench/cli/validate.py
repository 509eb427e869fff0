"""``spbench validate``: every error of suites, in one pass over each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from spbench.errors import ExitCode, SuiteError, UsageError
from spbench.suites.case import Suite
from spbench.suites.expectations import choose_references
from spbench.suites.loader import load_suite_file
from spbench_core.number_text import format_quantity


def validate(
    suites: Sequence[Path],
    overrides: Sequence[str] = (),
    system: str | None = None,
    *,
    verbose: bool = False,
) -> ExitCode:
    """Check suites; print their numbers of cases on stdout and all errors on stderr.

    With a ``system``, each expectation without a reference for it is printed as well.

    The workers' Python imports the user's networks that a suite names.

    If stdout is closed, as with `| head`, all suites are still checked.
    """
    errors = []
    for path in suites:
        try:
            suite = load_suite_file(path, tuple(overrides))
            all_checked = _check_networks(suite)
        except SuiteError as error:
            errors.append(str(error))
            continue
        except UsageError as error:
            errors.append(f"spbench: error: {error}")
            continue
        with suppress(BrokenPipeError):
            note = "" if all_checked else ", not all of them checked"
            print(f"{path}: {format_quantity(len(suite.cases), 'case')}, no errors{note}")
            for case in suite.cases if verbose else ():
                ranks = "all slots" if case.np is None else format_quantity(case.np, "rank")
                print(f"  {case.id}: {case.benchmark}, {ranks}")
            for remark in list_skipped_expectations(suite, system) if system is not None else ():
                print(f"  {remark}")
    if errors:
        with suppress(BrokenPipeError):
            sys.stderr.write("\n".join(errors) + "\n")
        return ExitCode.USAGE
    return ExitCode.PASSED


def list_skipped_expectations(suite: Suite, system: str) -> list[str]:
    """Return a remark on each expectation without a reference for a system."""
    return [
        f"{case.id}: expect of {expectation.metric} skipped: {expectation.skipped}"
        for case in choose_references(suite.cases, system)
        for expectation in case.expect
        if expectation.skipped is not None
    ]


def _check_networks(suite: Suite) -> bool:
    """Check with the workers' Python whether the user's networks can be imported.

    A network with a module that this machine does not have is a warning, since the hosts of a later
    run may have it.

    Returns:
        Whether all networks were checked.

    Raises:
        SuiteError: A network cannot be imported.
    """
    if not any(case.entry.checked_in for case in suite.cases):
        return True
    import asyncio

    from spbench.cli.request import print_progress, print_warning
    from spbench.engine.case_check import check_cases

    check = check_cases(suite, suite.cases, os.environ, print_progress, on_other_hosts=True)
    messages = asyncio.run(check)
    for message in messages:
        print_warning(message)
    return not messages
