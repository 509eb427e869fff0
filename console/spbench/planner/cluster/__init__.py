"""Clusters: machines, devices, links, and the placement of stages."""
