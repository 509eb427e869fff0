"""Pipeline schedules: the order of passes on every rank, and simulations of a step."""
