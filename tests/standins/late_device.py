"""A stand-in for a GPU: a torch device that does its work only at a wait for it.

Autograd treats tensors of the device ``late`` like real ones: backward passes run in a separate
thread, like on a GPU. Each operation is enqueued on the current stream, and its result is NaN until
the host waits for the stream. So a missing wait causes a wrong value. Copies to and from the host
wait like those of CUDA: blocking ones for the current stream, ``non_blocking`` ones not at all.

The device has its own clock, in seconds. `host` and `work` let time pass on the host and on the
current stream, and `LateEvent.seconds_since` returns it. A missing wait causes a wrong time.

Like on a GPU, an operation on tensors of the host and of the device raises `RuntimeError`. Memory
without a tensor is overwritten by the stream that allocated it, like by the next tensor of a
caching allocator. If another stream still reads it, the values are wrong.

Only streams, events and waits are those of a GPU: no CUDA kernel runs, and no memory is counted.

    late = install()                       # once per process; then torch.device("late") exists
    pixels = torch.ones(2, 3, device="late") * 2
    late.streams.synchronize()                  # now they are 2
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_flatten, tree_map

from spbench_parallel.device import streams as device_streams

NAME = "late"
OVERWRITTEN = 0xFF
"""Each byte of memory that was freed: NaN as a floating-point number."""


class Stream:
    """Work in its order.

    Attributes:
        freed: Freed storages for which the stream has no overwriting enqueued.
        enqueued: The number of enqueued operations.
        done: The number of done operations.
        busy_until: The end of its work, by the device's clock.
    """

    def __init__(self):
        self.queue = deque()
        self.freed = deque()
        self.enqueued = 0
        self.done = 0
        self.busy_until = 0.0
        self._is_working = False
        self._turn = threading.Condition()

    def enqueue(self, work):
        self._overwrite_freed()
        self._append(work)

    def position(self):
        """Return the position of the last enqueued work, for `run_to`."""
        self._overwrite_freed()
        return self.enqueued

    def _append(self, work):
        self.queue.append(work)
        self.enqueued += 1

    def _overwrite_freed(self):
        while self.freed:
            self._append(partial(_overwrite, self.freed.popleft()))

    def run_to(self, position):
        # Another thread may do the work: the one of late_ipc.py, for other processes.
        with self._turn:
            while self.done < position:
                if self._is_working:
                    self._turn.wait()
                else:
                    self._do_next()

    def _do_next(self):
        work = self.queue.popleft()
        self._is_working = True
        self._turn.release()
        try:
            work()
        finally:
            self._turn.acquire()
            self.done += 1
            self._is_working = False
            self._turn.notify_all()


def _overwrite(storage):
    ctypes.memset(storage.data_ptr(), OVERWRITTEN, storage.nbytes())


class LateEvent:
    """A point in the work of a stream; an event that was never recorded has passed."""

    def __init__(self, device):
        self._device = device
        self._stream = None
        self._position = 0
        self.time = 0.0

    def record(self):
        self._stream = self._device.current
        self._position = self._stream.position()
        self.time = max(self._stream.busy_until, self._device.now)
        # Like on a GPU, the event itself has a position in the stream.
        self._stream.busy_until = self.time

    def query(self):
        return self._stream is None or self._stream.done >= self._position

    def synchronize(self):
        if self._stream is not None:
            self._device.waits += not self.query()
            self._stream.run_to(self._position)
            if self._stream in (self._device.main, self._device.copies):
                # An event from before `reset` has a time of another clock.
                self._device.now = max(self._device.now, self.time)

    def seconds_since(self, earlier):
        assert self.query(), "the event has not passed: there was no wait for it"
        assert earlier.query(), "the earlier event has not passed: there was no wait for it"
        return self.time - earlier.time


class LateStreams:
    """The streams of the device, for `spbench_parallel.device.streams`."""

    def __init__(self, device):
        self._device = device

    def synchronize_device(self):
        self._device.device_wide += 1
        for stream in (self._device.main, self._device.copies):
            self._device.wait_for_stream(stream)

    def synchronize(self):
        self._device.wait_for_stream(self._device.current)

    @contextmanager
    def use_copy_stream(self):
        stream = self._device.current
        self._device.current = self._device.copies
        try:
            yield
        finally:
            self._device.current = stream

    def fork_copy_stream(self):
        self._device.order(self._device.copies, after=self._device.current)

    def join_copy_stream(self):
        self._device.order(self._device.current, after=self._device.copies)

    def event(self, *, timing=False):
        return LateEvent(self._device)


@dataclass
class Block:
    """Used memory: the stream that allocated it, and the number of its tensors."""

    stream: Stream
    tensors: int = 0


class Allocator:
    """The allocator of the device: streams overwrite memory after its last use."""

    def __init__(self):
        self._blocks = {}
        self._exempt = {}
        # Any thread may free tensors, and garbage collection even while its thread has the lock.
        self._lock = threading.RLock()

    def exempt(self, address, nbytes):
        """Never overwrite this memory, which other processes may use, too."""
        self._exempt[address] = address + nbytes

    def end_exemption(self, address):
        """Forget unmapped memory, because another tensor may get its address."""
        del self._exempt[address]

    def track(self, tensor, stream):
        """Keep the memory of a tensor until all tensors of this memory are freed."""
        storage = tensor.elem.untyped_storage()
        address = storage.data_ptr()
        if any(start <= address < end for start, end in list(self._exempt.items())):
            return
        with self._lock:
            block = self._blocks.setdefault(storage._cdata, Block(stream))
            block.tensors += 1
        # The finalizer refers to the storage, so that its address stays unique.
        weakref.finalize(tensor, self._release, storage).atexit = False

    def _release(self, storage):
        with self._lock:
            block = self._blocks[storage._cdata]
            block.tensors -= 1
            if block.tensors:
                return
            del self._blocks[storage._cdata]
        if storage.nbytes():
            # Any thread may be here, even one within `enqueue`: the stream overwrites it later.
            block.stream.freed.append(storage)


class LateDevice:
    """The device.

    Attributes:
        allocator: The allocator of its memory.
        main: The stream of work, unless another stream is active.
        copies: The stream of copies.
        now: The host's time, in seconds.
        device_wide: The number of waits for all streams at once.
        waits: The number of waits for a stream, or for an event that had not passed.
    """

    def __init__(self):
        self._of_thread = threading.local()
        self.library = torch.library.Library("aten", "IMPL")
        self.streams = LateStreams(self)
        self.allocator = Allocator()
        self.reset()

    def reset(self):
        self.main = Stream()
        self.copies = Stream()
        self.now = 0.0
        self.device_wide = 0
        self.waits = 0
        self._of_thread.current = self.main

    @property
    def current(self):
        return getattr(self._of_thread, "current", self.main)

    @current.setter
    def current(self, stream):
        self._of_thread.current = stream

    def wait_for_stream(self, stream):
        self.waits += 1
        stream.run_to(stream.position())
        self.now = max(self.now, stream.busy_until)

    def order(self, later, *, after):
        position = after.position()
        later.enqueue(lambda: after.run_to(position))
        later.busy_until = max(later.busy_until, after.busy_until)

    def host(self, seconds):
        """Let time pass on the host."""
        self.now += seconds

    def work(self, seconds):
        """Enqueue work of a duration on the current stream."""
        stream = self.current
        stream.enqueue(lambda: None)
        stream.busy_until = max(stream.busy_until, self.now) + seconds

    def clock(self):
        """Return the host's time; replaces ``time.perf_counter``."""
        return self.now


class LateTensor(torch.Tensor):
    """A tensor of the device; ``elem`` has its values, once its work is done."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem):
        tensor: LateTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=torch.device(NAME, 0),
        )
        tensor.elem = elem
        device = install()
        device.allocator.track(tensor, device.current)
        return tensor

    def __repr__(self, *, tensor_contents=None):
        return f"LateTensor({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[override]
        return _dispatch(install(), function, args, kwargs or {})


def unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor of the device; its work may not be done."""
    assert isinstance(tensor, LateTensor)
    return tensor.elem


_READS = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "unique_consecutive"}
"""Operations with a value that the host reads."""

_COPIES = {"copy_", "_to_copy", "_copy_from"}
"""Operations on tensors of any two devices."""


def _check_devices(function, args, kwargs):
    """Raise CUDA's error if the tensors of an operation are not all of the device.

    As on CUDA, tensors of the host are allowed in copies, as indices of a tensor of the device, and
    as numbers (without dimensions) that the operation only reads.
    """
    schema = function._schema
    if schema.name.partition("::")[2] in _COPIES:
        return
    arguments = {argument.name: argument for argument in schema.arguments}
    operands = chain(zip(arguments, args, strict=False), kwargs.items())
    for name, operand in operands:
        argument = arguments[name]
        if str(argument.type) == "List[Optional[Tensor]]":
            continue  # indices such as ``pixels[rows]``; CUDA copies them to the device
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        for tensor in tree_flatten(operand)[0]:
            if not isinstance(tensor, torch.Tensor) or isinstance(tensor, LateTensor):
                continue
            if tensor.dim() or is_written:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {tensor.device} and {NAME}:0! ({name} of {schema.name})"
                )


def _dispatch(device, function, args, kwargs):
    operands = tree_flatten((args, kwargs))[0]
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    wrappers = {id(tensor.elem): tensor for tensor in tensors if isinstance(tensor, LateTensor)}
    if not all(isinstance(tensor, LateTensor) for tensor in tensors):
        _check_devices(function, args, kwargs)
    args = _unwrap_all(args)
    kwargs = _unwrap_all(kwargs)
    name = function._schema.name.partition("::")[2]
    if name == "copy_":
        return _copy(device, wrappers, *args, **kwargs)
    if name == "_to_copy" and (kwargs.get("device") or torch.device(NAME)).type == "cpu":
        if not kwargs.get("non_blocking"):
            device.streams.synchronize()
            return function(*args, **kwargs)
        copy = _make_uninitialized(function(*args, **kwargs))
        device.current.enqueue(lambda: copy.copy_(args[0]))
        return copy
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu":
        return function(*args, **kwargs)  # memory of the host, such as that of `empty_like`
    kwargs = _move_to_host(kwargs)
    if name in _READS:
        device.streams.synchronize()
        return (
            _wrap(function(*args, **kwargs), wrappers)
            if name == "nonzero"
            else function(*args, **kwargs)
        )
    aliases = [argument.alias_info for argument in function._schema.returns]
    if any(alias is not None and not alias.is_write for alias in aliases):
        return _wrap(function(*args, **kwargs), wrappers)  # a view
    if function._schema.is_mutable:
        device.current.enqueue(lambda: function(*args, **kwargs))
        if not aliases:
            return None  # lists of tensors
        first = args[0] if args else kwargs["out"]
        returned = kwargs.get("out", first)
        return tree_map(lambda tensor: wrappers.get(id(tensor), tensor), returned)
    return _wrap(_run_later(device, function, args, kwargs), wrappers)


def _run_later(device, function, args, kwargs):
    """Return uninitialized results of the right shape, and enqueue the operation."""
    # A first run on copies: batch normalisation changes its running statistics, although its schema
    # does not declare it.
    with torch.no_grad():
        outputs = function(*tree_map(_clone, args), **tree_map(_clone, kwargs))
    leaves, structure = tree_flatten(outputs)
    targets = [_make_uninitialized(leaf) for leaf in leaves]

    def work():
        for target, value in zip(targets, tree_flatten(function(*args, **kwargs))[0], strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(value)

    device.current.enqueue(work)
    return torch.utils._pytree.tree_unflatten(targets, structure)


def _clone(leaf):
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _make_uninitialized(leaf):
    """Return a tensor of this shape and dtype without valid values."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.full_like(leaf, _choose_invalid(leaf.dtype))


def _copy(device, wrappers, target, source, non_blocking=False):
    to_device = id(target) in wrappers
    from_device = id(source) in wrappers
    if not to_device and not non_blocking:
        device.streams.synchronize()
        return target.copy_(source)
    device.current.enqueue(lambda: target.copy_(source))
    if not from_device and not non_blocking:
        device.streams.synchronize()
    return wrappers.get(id(target), target)


def _choose_invalid(dtype):
    return float("nan") if dtype.is_floating_point else 0


def _unwrap_all(tree):
    return tree_map(lambda leaf: leaf.elem if isinstance(leaf, LateTensor) else leaf, tree)


def _move_to_host(kwargs):
    return kwargs | {"device": torch.device("cpu")} if "device" in kwargs else kwargs


def _wrap(results, wrappers):
    def wrap(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        wrapper = wrappers.get(id(leaf))
        return LateTensor(leaf) if wrapper is None else wrapper

    return tree_map(wrap, results)


class _Module:
    """The module with which torch queries a kind of device."""

    def is_available(self):
        return True

    def device_count(self):
        return 1

    def current_device(self):
        return 0

    def _is_in_bad_fork(self):
        return False

    def synchronize(self, device=None):
        install().streams.synchronize_device()

    def manual_seed_all(self, seed):
        pass

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    dtype = dtype or torch.get_default_dtype()
    shape = {"memory_format": memory_format or torch.contiguous_format}
    return LateTensor(torch.empty(size, dtype=dtype, **shape).fill_(_choose_invalid(dtype)))


def _arange(*args, dtype=None, layout=None, device=None, pin_memory=None):
    """Replace torch's, which resizes an empty tensor: this device cannot do that."""
    values = torch.arange(*args, dtype=dtype, device="cpu")
    tensor = _empty(values.shape, dtype=values.dtype)
    install().current.enqueue(lambda: tensor.elem.copy_(values))
    return tensor


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = dtype or torch.get_default_dtype()
    return LateTensor(torch.empty_strided(size, stride, dtype=dtype).fill_(_choose_invalid(dtype)))


def _copy_numbers(source, target, non_blocking=False):
    """Copy Python's numbers to the device for `torch.tensor`."""
    _copy(install(), {id(target.elem): target}, target.elem, source, non_blocking)
    return target


@cache
def install():
    """Register the device in torch and its streams in spbench; return it."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
    device = LateDevice()
    device.library.impl("empty.memory_format", _empty, "PrivateUse1")
    device.library.impl("empty_strided", _empty_strided, "PrivateUse1")
    device.library.impl("_copy_from", _copy_numbers, "PrivateUse1")
    for overload in ("arange", "arange.start", "arange.start_step"):
        device.library.impl(overload, _arange, "PrivateUse1")
    device_streams.STREAM_FACTORIES[NAME] = lambda _: device.streams
    return device
