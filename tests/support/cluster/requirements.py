"""The error of a fixture with requirements that this machine does not meet."""

from __future__ import annotations


class MissingRequirementError(Exception):
    """This machine lacks something; the message names it, and the tests are skipped."""
