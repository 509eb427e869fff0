"""Transports of halo exchanges, each with the device whose memory it carries."""

TRANSPORT_DEVICES = {
    "packed": "cpu",
    "datatype": "cpu",
    "shm": "cpu",
    "cuda": "cuda",
    "cuda-ipc": "cuda",
    "nccl": "cuda",
}
"""The device that each transport carries the data of."""
