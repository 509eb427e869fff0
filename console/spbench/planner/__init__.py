"""The planner: from measured layers and links to the best parallel plan.

A search (`search`, `hpgo`) makes a plan (`plans`) from a profile (`profile`) and a cluster
(`cluster`). `simulation` simulates a step of it event by event, and `output` writes it. `planning`
does all of that in one call.

The names of ``__all__`` are for programs; the modules below may change. They are imported on first
use, and numpy only inside functions, so that console commands without a plan start without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.lazy_imports import make_lazy_getattr

if TYPE_CHECKING:
    from spbench.planner.cluster.lookup import machines_cluster, named_cluster
    from spbench.planner.errors import NoPlanError, PlannerError
    from spbench.planner.planning import plan, plan_many
    from spbench.planner.profile.files import load_profile
    from spbench.planner.simulation.step import simulate

__all__ = [
    "NoPlanError",
    "PlannerError",
    "load_profile",
    "machines_cluster",
    "named_cluster",
    "plan",
    "plan_many",
    "simulate",
]
_MODULES = {
    "NoPlanError": "errors",
    "PlannerError": "errors",
    "load_profile": "profile.files",
    "machines_cluster": "cluster.lookup",
    "named_cluster": "cluster.lookup",
    "plan": "planning",
    "plan_many": "planning",
    "simulate": "simulation.step",
}
"""The module of each name of ``__all__``."""

__getattr__ = make_lazy_getattr(
    __name__, {name: f"{__name__}.{module}" for name, module in _MODULES.items()}
)


def __dir__() -> list[str]:
    """Return the loaded names and those that are imported on first use."""
    return sorted({*globals(), *__all__})
