"""Launchers: one module each, from a job to its launcher's command."""
