"""A suite's text as an editor holds it: its cases or its errors, without an exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spbench.errors import Diagnostic, SuiteError, UsageError
from spbench.suites.case import Suite
from spbench.suites.loader import load_suite_text


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The suite, or why there is none: its errors in the order of their places."""

    suite: Suite | None
    diagnostics: Sequence[Diagnostic] = ()


def check_text(text: str, path: Path, overrides: Sequence[str] = ()) -> CheckedText:
    """Return what the loader makes of a text that may not be saved yet.

    Args:
        text: The whole text, in any state of being typed.
        path: The file that the diagnostics name.
        overrides: As for ``--set``; what is wrong with them stands at line 1.
    """
    try:
        return CheckedText(load_suite_text(text, path, overrides))
    except SuiteError as error:
        return CheckedText(None, tuple(error.diagnostics))
    except UsageError as error:
        return CheckedText(None, (Diagnostic(str(path), 1, 1, str(error)),))
