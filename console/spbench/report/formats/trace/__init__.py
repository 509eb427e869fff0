"""Traces of runs for Perfetto and Chrome's tracing."""
