"""The former name of the operators over tiles in `spbench_parallel.api`, for scripts."""

from spbench_core.late_import import late_names
from spbench_parallel.api import MODULES

__getattr__ = late_names(__name__, MODULES)
