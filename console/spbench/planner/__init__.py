"""The planner: from measured layers and links to the best parallel plan.

A profile (`profile`) and a cluster (`cluster`) go into a search (`search`, `hpgo`), which makes a
plan (`plans`); `simulation` runs a step of it event by event, `output` writes it. `planning` does
all of that in one call.

numpy is imported inside functions only: a console command that plans nothing starts without it.
"""
