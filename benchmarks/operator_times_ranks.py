"""The ranks of `benchmarks.operator_times`: steps with each operator timed.

    mpiexec -n RANKS python -m mpi4py -m benchmarks.operator_times_ranks STEPS NAME=VALUE...

The further arguments are parameters of `model.resnet`. Rank 0 prints as JSON, for each rank, the
seconds of a plain step and those of each kind of operator in a timed step.

A dispatch mode receives every operator of torch, forward and backward. It computes a convolution's
gradients of data and of weights one after the other, like the single call does.
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
_KINDS_BY_NAME = {
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
        seconds: Times by kind of operator. Operators that pack and unpack messages among tiles
            count as exchange.
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
        """Run an operator, and add its time."""
        name = func.overloadpacket.__name__
        if name == "convolution_backward":
            return self._time_backward(func, list(args))
        kind = "convolution forward" if name == "convolution" else find_kind(name)
        return self._time_call(kind, lambda: func(*args, **(kwargs or {})))

    def _time_backward(self, func: Any, args: list[Any]) -> Any:
        data, weights, bias = args[-1]
        gradients: list[Any] = [None, None, None]
        if data:
            kind = "gradients of data"
            gradients[0] = self._time_call(kind, lambda: func(*args[:-1], [True, False, False]))[0]
        if weights or bias:
            kind = "gradients of weights"
            gradients[1:] = self._time_call(kind, lambda: func(*args[:-1], [False, weights, bias]))[
                1:
            ]
        return tuple(gradients)

    def _time_call(self, kind: str, call: Callable[[], Any]) -> Any:
        start = perf_counter()
        output = call()
        if not self._exchanging:
            self.seconds[kind] += perf_counter() - start
        return output


def find_kind(name: str) -> str:
    """Return the kind of an operator from its name in ATen."""
    if name in _KINDS_BY_NAME:
        return _KINDS_BY_NAME[name]
    return "pointwise" if name.startswith(_POINTWISE) else "others"


def main(arguments: Sequence[str]) -> None:
    """Run the steps, and print their times."""
    steps = int(arguments[0])
    params_given = dict(argument.split("=", 1) for argument in arguments[1:])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    world = open_world()
    entry = BENCHMARKS["model.resnet"]
    params = entry.complete(params_given)
    context = Context(world, SilentChannel(), case="", benchmark=entry.name, params=params)
    case = build_case(context)
    plan = case.plan
    images = SyntheticImages(
        plan.model.image, params["num_classes"], seed=1, dtype=plan.dtype, device=plan.device
    )
    engine = Engine(world.comm, plan, images, case.training)
    _time_steps(engine, images, 1)
    plain_seconds = _time_steps(engine, images, steps)
    operator_times = OperatorTimes()
    with operator_times, COMM_STATS.use_timer(operator_times.exchange):
        _time_steps(engine, images, 1)  # torch prepares its dispatch on first use
        operator_times.seconds.clear()
        seconds_before = dict(engine.phases.seconds)
        timed_seconds = sum(_time_steps(engine, images, steps)) / steps
    phase_seconds = {
        name: engine.phases.seconds[name] - seconds_before[name] for name in seconds_before
    }
    seconds_by_kind = {kind: operator_times.seconds[kind] / steps for kind in (*KINDS, "exchange")}
    seconds_by_kind |= {
        "waits": phase_seconds["wait"] / steps,
        "gradient sums": phase_seconds["allreduce"] / steps,
    }
    seconds_by_kind["rest"] = max(0.0, timed_seconds - sum(seconds_by_kind.values()))
    rows = world.comm.gather(
        {"step": median(plain_seconds), "timed step": timed_seconds} | seconds_by_kind
    )
    engine.free()
    if rows is not None:
        print(json.dumps(rows), flush=True)


class SilentChannel:
    """A channel for a program without a console: it discards all events."""

    rank: int | None = None

    def send(self, event: str, **fields: Any) -> None:
        """Discard the event."""

    def receive_cases(self) -> list[dict[str, Any]]:
        """Return no cases."""
        return []

    def close(self) -> None:
        """Do nothing."""


def _time_steps(engine: Engine, images: SyntheticImages, steps: int) -> list[float]:
    """Run steps that start at the same time on all ranks; return their seconds."""
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
