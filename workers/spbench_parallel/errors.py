"""Errors of a valid case that cannot run here: something is missing, or does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CannotRunError(RuntimeError):
    """A case cannot run here; its text is one sentence that says why, and what to do.

    Attributes:
        missing: Whether the machine lacks something that was asked for: the run's exit code is 3.
    """

    missing = False


class NothingToSpoilError(CannotRunError):
    """A fault was to be injected where it would change nothing."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or the name of its class where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


_OF_THE_HOST = "DefaultCPUAllocator"
"""The text in torch's error where the host has no memory: there is no class for it."""


@contextmanager
def allocating(size: int) -> Iterator[None]:
    """Turn an error of the host's memory into one sentence with the size that was asked for.

    Args:
        size: The bytes that the block asks for.

    Raises:
        CannotRunError: The host has not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # Errors of a GPU say more, and are turned into a sentence by who runs the case.
        if isinstance(error, RuntimeError) and _OF_THE_HOST not in str(error):
            raise
        raise CannotRunError(
            f"there is no memory for {size / 2**30:.1f} GiB on this rank; take a smaller case"
        ) from None
