"""Formats of recorded runs for other programs: CI servers, monitoring, browsers."""
