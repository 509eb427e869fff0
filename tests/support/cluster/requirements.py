"""The error of a fixture that needs what this machine lacks: its tests are skipped."""

from __future__ import annotations


class MissingRequirementError(Exception):
    """This machine cannot do that; the message has the reason."""
