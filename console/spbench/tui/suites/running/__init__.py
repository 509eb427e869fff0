"""Runs that are started from the Suites page, also with planted faults."""
