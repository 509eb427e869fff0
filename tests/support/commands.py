"""Results of commands."""

from __future__ import annotations

from typing import NamedTuple


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The error on stderr.

        Only the lines ``usage:`` and ``help:`` may follow it, after an error of the command line.
        """
        error, *other_lines = self.err.splitlines()
        assert [line.partition(": ")[0] for line in other_lines] in ([], ["usage", "help"])
        assert "Traceback" not in self.err
        return error
