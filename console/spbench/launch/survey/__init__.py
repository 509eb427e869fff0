"""Surveys of hosts: their facts, whether ssh reaches them, and differences."""
