"""The former name of the tiled operators in `spbench_parallel.api`, for scripts."""

from spbench_core.lazy_imports import make_lazy_getattr
from spbench_parallel.api import MODULES

_OPERATORS = {
    name: module
    for name, module in MODULES.items()
    if module.startswith("spbench_parallel.spatial")
}
__all__ = list(_OPERATORS)

__getattr__ = make_lazy_getattr(__name__, _OPERATORS)
