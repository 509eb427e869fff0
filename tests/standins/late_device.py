"""A stand-in for a GPU: a device of torch that does its work only when something waits for it.

Tensors of the device ``late`` are real to autograd, whose backward passes run in a thread of their
own, as on a GPU. Each operation is put on the queue of the current stream, and its result holds NaN
until somebody waits for the stream: a wait that is missing shows as a wrong value. Copies to and
from the host wait as CUDA's do: blocking ones for the current stream, ``non_blocking`` ones not.

It has a clock too, in seconds of its own: `host` and `work` let time pass on the host and on the
current stream, and `LateEvent.seconds_since` tells it. A wait that is missing there shows as a
wrong time.

As on a GPU, an operation on tensors of the host and of the device raises `RuntimeError`. Memory
that no tensor uses any more is overwritten by the stream that it was allocated on: that is where a
caching allocator uses it again. If another stream still reads it, its values are wrong.

It stands in for streams, events and waits alone: no kernel of CUDA is run, no memory is counted.

    late = install()                       # once a process; then torch.device("late") is there
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
    """Work in order: what is done when, and by the device's clock until when.

    Attributes:
        freed: Storages that were freed and that the stream has not been asked to overwrite yet.
    """

    def __init__(self):
        self.queue = deque()
        self.freed = deque()
        self.asked = self.done = 0
        self.busy_until = 0.0
        self._under_way = False
        self._turn = threading.Condition()

    def ask(self, work):
        self._overwrite_freed()
        self._append(work)

    def position(self):
        """Return the position of the last work so far, for `run_to`."""
        self._overwrite_freed()
        return self.asked

    def _append(self, work):
        self.queue.append(work)
        self.asked += 1

    def _overwrite_freed(self):
        while self.freed:
            self._append(partial(_overwrite, self.freed.popleft()))

    def run_to(self, position):
        # Another thread may be at work: that of late_ipc.py, for other processes.
        with self._turn:
            while self.done < position:
                if self._under_way:
                    self._turn.wait()
                else:
                    self._do_next()

    def _do_next(self):
        work = self.queue.popleft()
        self._under_way = True
        self._turn.release()
        try:
            work()
        finally:
            self._turn.acquire()
            self.done, self._under_way = self.done + 1, False
            self._turn.notify_all()


def _overwrite(storage):
    ctypes.memset(storage.data_ptr(), OVERWRITTEN, storage.nbytes())


class LateEvent:
    """A point in the work of a stream; one that was never set has passed."""

    def __init__(self, device):
        self._device = device
        self._stream = None
        self._position = 0
        self.time = 0.0

    def record(self):
        self._stream = self._device.current
        self._position = self._stream.position()
        self.time = max(self._stream.busy_until, self._device.now)
        # As on a GPU, the event itself comes in the stream's order.
        self._stream.busy_until = self.time

    def query(self):
        return self._stream is None or self._stream.done >= self._position

    def synchronize(self):
        if self._stream is not None:
            self._device.waits += not self.query()
            self._stream.run_to(self._position)
            if self._stream in (self._device.main, self._device.copies):
                # One of before `reset` is of another time.
                self._device.now = max(self._device.now, self.time)

    def seconds_since(self, earlier):
        assert self.query(), "the event has not passed: nobody waited for it"
        assert earlier.query(), "the earlier event has not passed: nobody waited for it"
        return self.time - earlier.time


class LateStreams:
    """The streams of the device, as `spbench_parallel.device.streams` has them."""

    def __init__(self, device):
        self._device = device

    def synchronize_device(self):
        self._device.device_wide += 1
        for stream in (self._device.main, self._device.copies):
            self._device.wait_for(stream)

    def synchronize(self):
        self._device.wait_for(self._device.current)

    @contextmanager
    def use_copy_stream(self):
        kept, self._device.current = self._device.current, self._device.copies
        try:
            yield
        finally:
            self._device.current = kept

    def fork_copy_stream(self):
        self._device.order(self._device.copies, after=self._device.current)

    def join_copy_stream(self):
        self._device.order(self._device.current, after=self._device.copies)

    def event(self, *, timing=False):
        return LateEvent(self._device)


@dataclass
class Block:
    """Memory of the device in use: the stream it was allocated on and the number of its tensors."""

    stream: Stream
    tensors: int = 0


class Allocator:
    """The allocator of the device, which lets streams overwrite memory that is no longer used."""

    def __init__(self):
        self._blocks = {}
        self._exempt = {}
        # Any thread may free tensors, and garbage collection even while its thread has the lock.
        self._lock = threading.RLock()

    def exempt(self, address, nbytes):
        """Do not overwrite this memory, which other processes may use as well."""
        self._exempt[address] = address + nbytes

    def end_exemption(self, address):
        """Forget memory that is no longer mapped: its address may be given to another tensor."""
        del self._exempt[address]

    def track(self, tensor, stream):
        """Keep the memory of a tensor until it and all others of the same memory are gone."""
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
            # Any thread may be here, even one within `ask`: the stream takes it up later.
            block.stream.freed.append(storage)


class LateDevice:
    """The device.

    Attributes:
        allocator: The allocator of its memory.
        main: The stream that work goes to unless another is entered.
        copies: The stream of copies.
        now: The host's time, in seconds.
        device_wide: How often somebody waited for all streams at once.
        waits: How often the host waited for a stream, or for an event that had not passed.
    """

    def __init__(self):
        self._here = threading.local()
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
        self._here.current = self.main

    @property
    def current(self):
        return getattr(self._here, "current", self.main)

    @current.setter
    def current(self, stream):
        self._here.current = stream

    def wait_for(self, stream):
        self.waits += 1
        stream.run_to(stream.position())
        self.now = max(self.now, stream.busy_until)

    def order(self, later, *, after):
        position = after.position()
        later.ask(lambda: after.run_to(position))
        later.busy_until = max(later.busy_until, after.busy_until)

    def host(self, seconds):
        """Let time pass on the host."""
        self.now += seconds

    def work(self, seconds):
        """Put work of so many seconds on the current stream."""
        stream = self.current
        stream.ask(lambda: None)
        stream.busy_until = max(stream.busy_until, self.now) + seconds

    def clock(self):
        """The host's time: stands in for ``time.perf_counter``."""
        return self.now


class LateTensor(torch.Tensor):
    """A tensor of the device; ``elem`` has its values, once its work is done."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem):
        made: LateTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=torch.device(NAME, 0),
        )
        made.elem = elem
        device = install()
        device.allocator.track(made, device.current)
        return made

    def __repr__(self, *, tensor_contents=None):
        return f"LateTensor({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[override]
        return _dispatch(install(), function, args, kwargs or {})


def elem_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor of the device; its work may not be done."""
    assert isinstance(tensor, LateTensor)
    return tensor.elem


_READS = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "unique_consecutive"}
"""Operations whose answer the host reads."""

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
    args, kwargs = _elems(args), _elems(kwargs)
    name = function._schema.name.partition("::")[2]
    if name == "copy_":
        return _copy(device, wrappers, *args, **kwargs)
    if name == "_to_copy" and (kwargs.get("device") or torch.device(NAME)).type == "cpu":
        if not kwargs.get("non_blocking"):
            device.streams.synchronize()
            return function(*args, **kwargs)
        made = torch.full_like(
            function(*args, **kwargs), _garbage(kwargs.get("dtype", args[0].dtype))
        )
        device.current.ask(lambda: made.copy_(args[0]))
        return made
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu":
        return function(*args, **kwargs)  # memory of the host, such as `empty_like` makes
    kwargs = _on_host(kwargs)
    if name in _READS:
        device.streams.synchronize()
        return (
            _wrapped(function(*args, **kwargs), wrappers)
            if name == "nonzero"
            else function(*args, **kwargs)
        )
    aliases = [one.alias_info for one in function._schema.returns]
    if any(one is not None and not one.is_write for one in aliases):
        return _wrapped(function(*args, **kwargs), wrappers)  # a view
    if function._schema.is_mutable:
        device.current.ask(lambda: function(*args, **kwargs))
        if not aliases:
            return None  # lists of tensors
        first = args[0] if args else kwargs["out"]
        returned = kwargs.get("out", first)
        return tree_map(lambda one: wrappers.get(id(one), one), returned)
    return _wrapped(_later(device, function, args, kwargs), wrappers)


def _later(device, function, args, kwargs):
    """Results with nothing in them yet: that they are of the right shape is known at once."""
    with torch.no_grad():
        results = function(*tree_map(_copied, args), **tree_map(_copied, kwargs))
    kept, shape = tree_flatten(results)
    made = [
        torch.full_like(one, _garbage(one.dtype)) if isinstance(one, torch.Tensor) else one
        for one in kept
    ]

    def work():
        for target, value in zip(made, tree_flatten(function(*args, **kwargs))[0], strict=True):
            if isinstance(target, torch.Tensor):
                target.copy_(value)

    device.current.ask(work)
    return torch.utils._pytree.tree_unflatten(made, shape)


def _copied(one):
    """For a first run: batch normalisation changes its running statistics, whatever it says."""
    return one.clone() if isinstance(one, torch.Tensor) else one


def _copy(device, wrappers, target, source, non_blocking=False):
    to_device = id(target) in wrappers
    from_device = id(source) in wrappers
    if not to_device and not non_blocking:
        device.streams.synchronize()
        return target.copy_(source)
    device.current.ask(lambda: target.copy_(source))
    if not from_device and not non_blocking:
        device.streams.synchronize()
    return wrappers.get(id(target), target)


def _garbage(dtype):
    return float("nan") if dtype.is_floating_point else 0


def _elems(tree):
    return tree_map(lambda one: one.elem if isinstance(one, LateTensor) else one, tree)


def _on_host(kwargs):
    return {name: torch.device("cpu") if name == "device" else one for name, one in kwargs.items()}


def _wrapped(results, wrappers):
    def wrap(one):
        if not isinstance(one, torch.Tensor):
            return one
        known = wrappers.get(id(one))
        return LateTensor(one) if known is None else known

    return tree_map(wrap, results)


class _Module:
    """The module that torch asks about a kind of device."""

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
    return LateTensor(torch.empty(size, dtype=dtype, **shape).fill_(_garbage(dtype)))


def _arange(*args, dtype=None, layout=None, device=None, pin_memory=None):
    """Torch's own makes an empty tensor and resizes it, as no tensor of this device can be."""
    values = torch.arange(*args, dtype=dtype, device="cpu")
    tensor = _empty(values.shape, dtype=values.dtype)
    install().current.ask(lambda: tensor.elem.copy_(values))
    return tensor


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    dtype = dtype or torch.get_default_dtype()
    return LateTensor(torch.empty_strided(size, stride, dtype=dtype).fill_(_garbage(dtype)))


def _copy_from(source, target, non_blocking=False):
    """The copy that `torch.tensor` makes for a device, from numbers of Python's."""
    _copy(install(), {id(target.elem): target}, target.elem, source, non_blocking)
    return target


@cache
def install():
    """Give torch the device, and spbench its streams; return it. Once a process is enough."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
    device = LateDevice()
    device.library.impl("empty.memory_format", _empty, "PrivateUse1")
    device.library.impl("empty_strided", _empty_strided, "PrivateUse1")
    device.library.impl("_copy_from", _copy_from, "PrivateUse1")
    for overload in ("arange", "arange.start", "arange.start_step"):
        device.library.impl(overload, _arange, "PrivateUse1")
    device_streams.STREAM_FACTORIES[NAME] = lambda _: device.streams
    return device
