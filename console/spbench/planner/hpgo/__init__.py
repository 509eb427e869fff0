"""Mode ``hpgo``: DAPPLE's planner, and the baselines that a plan is held against."""
