"""Errors of a valid case that cannot run here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CannotRunError(RuntimeError):
    """A case cannot run here; the text is one message with the reason and the remedy.

    Attributes:
        missing: Whether the machine lacks a requested feature, so that the run's exit code is 3.
    """

    missing = False


class MissingModuleError(CannotRunError):
    """A missing module of a network, which other hosts may have."""


class FaultWithoutEffectError(CannotRunError):
    """An injected fault would change nothing."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or the name of its class if it has no text."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


# Torch has no class for the error of a host without memory, only this text.
_HOST_ALLOCATOR = "DefaultCPUAllocator"


@contextmanager
def catch_out_of_memory(size: int) -> Iterator[None]:
    """Replace an out-of-memory error of the host by a message with the requested size.

    Args:
        size: The bytes that the block requests.

    Raises:
        CannotRunError: The host has not enough memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # Errors of a GPU have more details, and the runner of the case reports them.
        if isinstance(error, RuntimeError) and _HOST_ALLOCATOR not in str(error):
            raise
        raise CannotRunError(
            f"there is no memory for {size / 2**30:.1f} GiB on this rank; take a smaller case"
        ) from None
