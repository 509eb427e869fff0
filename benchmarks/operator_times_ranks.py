"""The ranks of `benchmarks.operator_times`: steps of a model, each operator timed by itself.

    mpiexec -n RANKS python -m mpi4py -m benchmarks.operator_times_ranks STEPS NAME=VALUE...

The further words are parameters of `model.resnet`. Rank 0 prints, in JSON, for each rank the
seconds of a plain step and those of each kind of operator in a timed one.

A dispatch mode sees every operator of torch, forward and backward. Of a convolution's backward it
computes the gradients of data and of weights one after the other, which is what one call does.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_core.catalog import BENCHMARKS
from spbench_parallel.engine import Engine
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_workers.benchmarks.model.case import build_case
from spbench_workers.comm import open_world
from spbench_workers.context import Context

CONVOLUTIONS = ("convolution forward", "gradients of data", "gradients of weights")
KINDS = (*CONVOLUTIONS, "normalisation", "pointwise", "copies", "linear", "others")
_KIND_OF = {
    "native_batch_norm": "normalisation",
    "cudnn_batch_norm": "normalisation",
    "native_batch_norm_backward": "normalisation",
    "_native_batch_norm_legit": "normalisation",
    "batch_norm_update_stats": "normalisation",
    "var_mean": "normalisation",
    "copy_": "copies",
    "clone": "copies",
    "_to_copy": "copies",
    "cat": "copies",
    "fill_": "copies",
    "zero_": "copies",
    "constant_pad_nd": "copies",
    "addmm": "linear",
    "mm": "linear",
}
_POINTWISE = ("add", "mul", "sub", "div", "relu", "threshold", "clamp", "sum", "mean", "sqrt")


class OperatorTimes(TorchDispatchMode):
    """A dispatch mode that times every operator of torch on this rank.

    Attributes:
        seconds: By kind of operator; those that pack and unpack messages among tiles are part of
            the exchange.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._exchanging = False

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Count the time inside as exchange among tiles."""
        start = perf_counter()
        self._exchanging = True
        yield
        self._exchanging = False
        self.seconds["exchange"] += perf_counter() - start

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and count its time."""
        name = func.overloadpacket.__name__
        if name == "convolution_backward":
            return self._backward(func, list(args))
        kind = "convolution forward" if name == "convolution" else kind_of(name)
        return self._timed(kind, lambda: func(*args, **(kwargs or {})))

    def _backward(self, func: Any, args: list[Any]) -> Any:
        data, weights, bias = args[-1]
        found: list[Any] = [None, None, None]
        if data:
            kind = "gradients of data"
            found[0] = self._timed(kind, lambda: func(*args[:-1], [True, False, False]))[0]
        if weights or bias:
            kind = "gradients of weights"
            found[1:] = self._timed(kind, lambda: func(*args[:-1], [False, weights, bias]))[1:]
        return tuple(found)

    def _timed(self, kind: str, call: Callable[[], Any]) -> Any:
        start = perf_counter()
        made = call()
        if not self._exchanging:
            self.seconds[kind] += perf_counter() - start
        return made


def kind_of(name: str) -> str:
    """Return the kind of an operator by its name in ATen."""
    if name in _KIND_OF:
        return _KIND_OF[name]
    return "pointwise" if name.startswith(_POINTWISE) else "others"


def main(words: Sequence[str]) -> None:
    """Take the steps, and print what they took."""
    steps = int(words[0])
    given = dict(word.split("=", 1) for word in words[1:])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    world = open_world()
    entry = BENCHMARKS["model.resnet"]
    params = entry.complete(given)
    context = Context(world, SilentChannel(), case="", benchmark=entry.name, params=params)
    case = build_case(context)
    plan = case.plan
    images = SyntheticImages(
        plan.model.image, params["num_classes"], seed=1, dtype=plan.dtype, device=plan.device
    )
    engine = Engine(world.comm, plan, images, case.training)
    _steps(engine, images, 1)
    plain = _steps(engine, images, steps)
    times = OperatorTimes()
    with times, COMM_STATS.use_timer(times.exchange):
        _steps(engine, images, 1)  # torch prepares what it needs to tell operators apart
        times.seconds.clear()
        before = dict(engine.phases.seconds)
        timed = sum(_steps(engine, images, steps)) / steps
    phases = {name: engine.phases.seconds[name] - before[name] for name in before}
    row = {kind: times.seconds[kind] / steps for kind in (*KINDS, "exchange")}
    row |= {"waits": phases["wait"] / steps, "gradient sums": phases["allreduce"] / steps}
    row["rest"] = max(0.0, timed - sum(row.values()))
    rows = world.comm.gather({"step": median(plain), "timed step": timed} | row)
    engine.free()
    if rows is not None:
        print(json.dumps(rows), flush=True)


class SilentChannel:
    """A channel for a program without a console: nobody is told."""

    rank: int | None = None

    def send(self, event: str, **fields: Any) -> None:
        """Send nothing."""

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no case."""
        return []

    def close(self) -> None:
        """Close nothing."""


def _steps(engine: Engine, images: SyntheticImages, steps: int) -> list[float]:
    """Take steps that all ranks begin together; return their seconds."""
    seconds = []
    for step in range(steps):
        engine.world.Barrier()
        images.set_step(step)
        start = perf_counter()
        engine.step()
        seconds.append(perf_counter() - start)
    return seconds


if __name__ == "__main__":
    main(sys.argv[1:])
