"""Pipeline schedules: orders of passes, and simulations of a step."""
