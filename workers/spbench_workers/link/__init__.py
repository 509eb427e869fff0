"""Links between pairs of ranks. Only the modules of devices, `device_*`, import torch."""
