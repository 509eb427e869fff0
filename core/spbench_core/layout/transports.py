"""The transports that carry pixels between ranks."""

TRANSPORT_DEVICES = {
    "packed": "cpu",
    "datatype": "cpu",
    "shm": "cpu",
    "cuda": "cuda",
    "cuda-ipc": "cuda",
    "nccl": "cuda",
}
"""The transports of pixels, each with the device of the data that it carries."""
