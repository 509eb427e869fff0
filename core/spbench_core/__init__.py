"""The core of spbench: events, benchmarks, layouts, schedules, models and networks.

Console and workers both stand on it. Standard library only: the console imports it without torch,
the ranks without the console.
"""
