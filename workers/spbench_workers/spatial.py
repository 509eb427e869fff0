"""The former name of `spbench_parallel.spatial`, for scripts that import it."""

from spbench_parallel.spatial import *  # noqa: F403
from spbench_parallel.spatial import __all__  # noqa: F401
