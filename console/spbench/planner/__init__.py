"""The planner: from measured layers and links to the best parallel plan.

Profiles (`profile`, `torchgraph`, `profile_json`, `profile_files`) become states (`states`,
`linear`), clusters come from files, presets or a recorded run (`cluster`, `cluster_yaml`,
`presets`, `cluster_measured`), and a search (`hpgo`, `best`) makes a `Plan` (`plans`) of both,
which `simulation` runs event by event.

numpy is imported inside functions only: a console command that plans nothing starts without it.
"""

from spbench.planner.planning import plan, plan_many
from spbench.planner.plans import Plan
from spbench.planner.simulation import Simulation, simulate

__all__ = ["Plan", "Simulation", "plan", "plan_many", "simulate"]
