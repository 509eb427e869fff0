"""Transports of halo exchanges, each with the kind of device memory that it carries."""

TRANSPORT_DEVICES = {
    "packed": "cpu",
    "datatype": "cpu",
    "shm": "cpu",
    "cuda": "cuda",
    "cuda-ipc": "cuda",
    "nccl": "cuda",
}
"""The device that each transport carries the data of."""
