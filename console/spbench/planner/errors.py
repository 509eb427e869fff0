"""Errors of the planner; each ends a command with exit code 2.

PlannerError        an invalid profile, cluster or batch
├── FileError       all errors of one file, each with its position
│   ├── ProfileError
│   └── ClusterError
└── NoPlanError     no plan fits the cluster
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spbench.errors import Diagnostic, UsageError, format_error_list


class PlannerError(UsageError):
    """An invalid profile, cluster or batch."""


class FileError(PlannerError):
    """All errors of one file, in the order of their positions."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: Sequence[Diagnostic] = sorted(diagnostics)
        super().__init__(format_error_list(list(map(str, self.diagnostics))))


class ProfileError(FileError):
    """All errors of one profile."""


class ClusterError(FileError):
    """All errors of one cluster file."""


class NoPlanError(PlannerError):
    """No plan fits; the message names the stage that lacks memory."""
