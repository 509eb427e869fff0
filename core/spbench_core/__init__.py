"""The core of spbench: events, benchmarks, layouts, schedules and networks.

Console and workers import it. It needs the standard library only, because the console runs without
torch and the ranks run without the console.
"""
