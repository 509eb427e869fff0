"""Pipeline schedules: the order of passes on every rank, and a step of them simulated."""
