"""Commands that have ended."""

from __future__ import annotations

from typing import NamedTuple


class Done(NamedTuple):
    """A command that has ended: its exit code, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line on stderr of a command that was refused."""
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        return self.err.rstrip("\n")
