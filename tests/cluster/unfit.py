"""The error of a fixture where this machine cannot play its part; the test is skipped."""

from __future__ import annotations


class UnfitError(Exception):
    """This machine cannot do that; the sentence says why."""
