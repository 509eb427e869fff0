"""What both sides of spbench know: events, benchmarks, layouts, schedules, models and networks.

Standard library only: the console imports it without torch, the ranks without the console.
"""
