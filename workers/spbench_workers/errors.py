"""What stops a case that was asked for rightly: something is not there, or does not fit."""

from __future__ import annotations


class CannotRunError(RuntimeError):
    """A case cannot run here; its text is one sentence that says why, and what to do."""
