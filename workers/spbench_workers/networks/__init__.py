"""The weights and biases of known networks, by name, depth and image: standard library only."""

from spbench_workers.networks.graph import NetworkError, Parameter
from spbench_workers.networks.known import NETWORKS, Network, parameters, total_mb

__all__ = ["NETWORKS", "Network", "NetworkError", "Parameter", "parameters", "total_mb"]
