"""The planner: from measured layers and links to the best parallel plan.

A profile (`profile`) and a cluster (`cluster`) go into a search (`search`, `hpgo`), which makes a
plan (`plans`); `simulation` runs a step of it event by event, `output` writes it. `planning` does
all of that in one call.

What ``__all__`` names is for programs; the modules below may change. It is imported when it is
first asked for, and numpy inside functions only: a console command that plans nothing starts
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.late_import import make_lazy_getattr

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
_FROM = {
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
    __name__, {name: f"{__name__}.{module}" for name, module in _FROM.items()}
)


def __dir__() -> list[str]:
    """Return the names that are here already, and those still to be imported."""
    return sorted({*globals(), *__all__})
