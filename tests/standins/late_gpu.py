"""A stand-in for a GPU that all ranks of a job share: the device that runs late.

The functions change modules of the workers in a rank that the console has started: see
`benchmarks/gpu_once/rank_site`. NCCL is rejected, like on a GPU that ranks share.
"""

from time import perf_counter

import torch

from spbench_parallel.groups import is_on_one_host
from standins.late_device import NAME, LateEvent, install
from standins.late_ipc import install_ipc

_REASON = "a stand-in for a GPU"


def take_late_device(choice):
    """Let `choose_device` return the late device, unless a rank needs no GPU."""
    install()
    install_ipc()
    LateEvent.record = _record_host_time  # type: ignore[method-assign]
    choice.choose_device = _choose_device(NAME)


def take_host(choice):
    """Let `choose_device` return the host instead of a GPU."""
    choice.choose_device = _choose_device("cpu")


def _choose_device(stand_in):
    def choose_device(context, *, preference=None, index=None, tf32=False):
        requested = preference or context.params["device"]
        name = "cpu" if requested == "cpu" else stand_in
        reason = "asked for" if requested == "cpu" else _REASON
        context.device(name, reason, speaks=context.world.rank == 0, near=None)
        return torch.device(name)

    return choose_device


_record = LateEvent.record


def _record_host_time(event):
    """Record an event with the host's time."""
    # The clock of the device does not advance in a run.
    _record(event)
    event.time = perf_counter()


def offer_transports_of_gpus(choose):
    """Let the late device have the transports of a GPU that ranks of one host share."""
    find_unsupported = choose.find_unsupported

    def find_late_unsupported(wiring):
        if wiring.device.type != NAME:
            return find_unsupported(wiring)
        reasons = {
            name: "is for memory of the host"
            for name, kind in choose.TRANSPORT_DEVICES.items()
            if kind == "cpu"
        }
        reasons["nccl"] = "needs a GPU for each rank"
        reasons["cuda-pinned"] = "is what cuda is here"
        if not is_on_one_host(wiring.comm):
            reasons["cuda-ipc"] = "needs all ranks on one host"
        return reasons

    choose.find_unsupported = find_late_unsupported
