"""Clusters: machines, devices, the links between them, and where stages can be placed."""
