"""Mode ``hpgo``: DAPPLE's planner, and the baselines to compare a plan with."""
