"""A run that could not be started: its request, the reason, and keys that help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spbench.tui.advice import name_keys
from spbench_core.number_text import format_quantity

_SUITE_SUFFIXES = (".yaml", ".yml")
_START_AGAIN = "then F5 on the Run page starts it again"
_DEFAULT_REMEDY = f"fix the reason, {_START_AGAIN}"
_CHOOSE_HOSTS = f"H or the Hosts page chooses other hosts, {_START_AGAIN}"
_REMEDIES = (
    (re.compile(r"--assume"), f"L chooses a launcher that is installed here, {_START_AGAIN}"),
    (re.compile(r"\blauncher\b"), f"L chooses another launcher, {_START_AGAIN}"),
    (re.compile(r"\bhosts?\b|\bslots\b|hostfile"), _CHOOSE_HOSTS),
    (re.compile(r"\bcases?\b"), "choose other cases on the Suites page, then F5 there starts them"),
)
"""Remedies by a pattern in the reason; the first that fits is used."""
_PATH = re.compile(r"\S*/\S*|\S+\.[a-z]\S*")
"""Paths and names of files, which may have the words of a remedy by chance."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A run that could not be started.

    Attributes:
        request: The suite, cases and hosts of the run.
        reason: The error message.
        remedy: The keys that help.
    """

    request: str
    reason: str
    remedy: str


def explain_start_failure(args: Sequence[str], message: str) -> StartFailure:
    """Return the failure of a run with these arguments of ``spbench run``."""
    prose = _PATH.sub("", message)
    remedy = next(
        (remedy for pattern, remedy in _REMEDIES if pattern.search(prose)), _DEFAULT_REMEDY
    )
    return StartFailure(describe_request(args), _word_reason(args, message), remedy)


def _word_reason(args: Sequence[str], message: str) -> str:
    library = _find_value(args, "--assume")
    if library is not None and "--assume" in message:
        return f"{library} is assumed, not installed: only its launch lines can be shown"
    return name_keys(message)


def describe_request(args: Sequence[str]) -> str:
    """Return the suite, cases, fault and hosts of a run in words."""
    failed_run = _find_value(args, "--failed")
    if failed_run is not None:
        return f"the failed cases of {failed_run}"
    suite = next((arg for arg in args if arg.endswith(_SUITE_SUFFIXES)), args[0])
    parts = [Path(suite).name, _describe_cases(_list_values(args, "--case"))]
    faults = ", ".join(_list_values(args, "--inject"))
    launcher = _find_value(args, "--launcher")
    parts.append(f"fault {faults}" if faults else "")
    parts.append("" if launcher is None else f"launcher {launcher}")
    hosts = _find_value(args, "--hosts") or _find_value(args, "--hostfile")
    parts.append("" if hosts is None else f"on {hosts}")
    return ", ".join(filter(None, parts))


def _describe_cases(cases: Sequence[str]) -> str:
    if not cases:
        return ""
    return cases[0] if len(cases) == 1 else format_quantity(len(cases), "case")


def _find_value(args: Sequence[str], option: str) -> str | None:
    return next(iter(_list_values(args, option)), None)


def _list_values(args: Sequence[str], option: str) -> list[str]:
    """Return the values of an option, each the argument after it."""
    return [value for name, value in pairwise(args) if name == option]
