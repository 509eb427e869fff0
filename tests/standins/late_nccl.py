"""A stand-in for NCCL on the device that runs late: MPI does its work later.

Its work is on the copy stream, which first waits for the current one. With `Pending.wait`, the
current stream waits for it, and the host does not.
"""

import torch.distributed as dist
from mpi4py import MPI

from spbench_parallel.p2p import torch_group
from standins.late_device import install

_acquire = torch_group.acquire
_release = torch_group.release
_OPS = {
    dist.ReduceOp.SUM: MPI.SUM,
    dist.ReduceOp.PRODUCT: MPI.PROD,
    dist.ReduceOp.MAX: MPI.MAX,
    dist.ReduceOp.MIN: MPI.MIN,
}


class LatePending:
    def __init__(self, event):
        self._event = event

    def wait(self):
        install().streams.join_copy_stream()

    def is_completed(self):
        return self._event.query()


class LateGroup:
    def __init__(self, comm):
        self.comm = comm.Dup()

    def exchange(self, receives, sends, tag):
        def work():
            requests = [
                self.comm.Irecv(vector.elem.numpy(), source, tag) for vector, source in receives
            ]
            requests += [
                self.comm.Isend(vector.elem.numpy(), target, tag) for vector, target in sends
            ]
            MPI.Request.Waitall(requests)

        return [self._enqueue(work)]

    def allreduce(self, vector, op):
        def work():
            self.comm.Allreduce(MPI.IN_PLACE, vector.elem.numpy(), _OPS[op])

        return self._enqueue(work)

    def _enqueue(self, work):
        late = install()
        late.streams.fork_copy_stream()
        with late.streams.use_copy_stream():
            late.current.enqueue(work)
            event = late.streams.event()
            event.record()
        return LatePending(event)


_groups = {}


def acquire(comm, device):
    """Replace `torch_group.acquire`; the host still has gloo."""
    if device.type != "late":
        return _acquire(comm, device)
    group, users = _groups.get(comm.handle, (None, 0))
    group = group or LateGroup(comm)
    _groups[comm.handle] = group, users + 1
    return group


def release(comm, device):
    """Replace `torch_group.release`."""
    if device.type != "late":
        _release(comm, device)
        return
    group, users = _groups.pop(comm.handle)
    if users > 1:
        _groups[comm.handle] = group, users - 1
    else:
        install().streams.synchronize()
        group.comm.Free()


def explain_missing_nccl(comm, device):
    """Replace `torch_group.explain_missing_nccl`."""
    return ""
