"""What stops a case that was asked for rightly: something is not there, or does not fit."""

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
    """A fault was to be planted where it would change nothing."""


_OF_THE_HOST = "DefaultCPUAllocator"
"""What torch says in an error where the host has no memory: it has no class for it."""


@contextmanager
def allocating(size: int) -> Iterator[None]:
    """Tell what was asked for where there is no memory for it.

    Args:
        size: The bytes that the block asks for.

    Raises:
        CannotRunError: The host has none.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # Of a GPU more is known, and told by who runs the case.
        if isinstance(error, RuntimeError) and _OF_THE_HOST not in str(error):
            raise
        raise CannotRunError(
            f"there is no memory for {size / 2**30:.1f} GiB on this rank; take a smaller case"
        ) from None
