"""Channels of a rank for events: over TCP to the console, or to a file.

Nothing here imports torch or MPI: a rank connects before it loads either.
"""
