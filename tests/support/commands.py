"""Commands that have ended."""

from __future__ import annotations

from typing import NamedTuple


class CommandResult(NamedTuple):
    """A command that has ended: its exit code, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line on stderr of a command that was refused.

        After an error of the command line come only its usage and where its help is.
        """
        error, *more = self.err.splitlines()
        assert [line.partition(": ")[0] for line in more] in ([], ["usage", "help"])
        assert "Traceback" not in self.err
        return error
