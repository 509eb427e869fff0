"""Ping-pong over links between pairs of ranks. Only `device_*` modules import torch."""
