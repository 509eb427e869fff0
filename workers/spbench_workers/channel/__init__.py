"""Channels of a rank for events: to the console's collector over TCP, or to a file.

Nothing here imports torch or MPI: a rank connects before it loads either.
"""
