"""The former name of `spbench_parallel.api`, for scripts that import it."""

from spbench_parallel.api import Box, CannotRunError, Load, ParallelNetwork

__all__ = ["Box", "CannotRunError", "Load", "ParallelNetwork"]
