"""Epochs: learning rate decay, checkpoints and log lines between timed steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from spbench_workers.context import Context
from spbench_workers.parallel.checkpoints import checkpoint
from spbench_workers.parallel.engine import Engine


class Epochs:
    """The epochs of a case. All ranks must call its methods together.

    Args:
        context: The case.
        engine: The model.
        images: Number of images of a step, of all replicas.
        begun: Number of steps trained before.
    """

    def __init__(self, context: Context, engine: Engine, images: int, begun: int) -> None:
        params = context.params
        self._context, self._engine, self._images = context, engine, images
        self._steps, self._count = params["iterations"], params["num_epochs"]
        self._learnt = begun + params["warmup"]
        self._path = None if engine.trainer is None else params["checkpoint"]
        self._every = params["checkpoint_every"] or self._steps * self._count
        self._said: list[tuple[float, float]] = []

    def pauses(self) -> Mapping[int, Callable[[], object]]:
        """Return the actions between steps, by the number of timed steps before them."""
        last = self._steps * self._count
        ends = set(range(self._steps, last + 1, self._steps))
        saves = set(range(self._every, last + 1, self._every)) | {last} if self._path else set()
        return {done: partial(self._pause, done) for done in ends | saves}

    def finish(self, times: array[float]) -> None:
        """Say the lines of the reference scripts (MPI4DL), with rates in images per second."""
        seconds = [self._context.slowest(time) / 1000.0 for time in times]
        rates = [self._images / time for time in seconds]
        for epoch in range(self._count):
            first, last = epoch * self._steps, (epoch + 1) * self._steps
            rate = self._images * self._steps / sum(seconds[first:last])
            self._say(f"Epoch: {epoch} images per sec:{rate:.6g}")
            if self._said:
                loss, accuracy = self._said[epoch]
                self._say(f"Epoch {epoch} Global loss: {loss:.6g} Acc {accuracy:.6g}")
        self._say(f"Mean {sum(rates) / len(rates):.6g} Median {median(rates):.6g}")

    def _pause(self, done: int) -> None:
        engine = self._engine
        if done % self._steps == 0 and engine.trainer is not None:
            self._said.append((engine.loss(), engine.accuracy()))
            engine.end_epoch()
        if self._path and (done % self._every == 0 or done == self._steps * self._count):
            checkpoint.save(Path(self._path), engine, self._learnt + done)

    def _say(self, line: str) -> None:
        if self._context.world.rank == 0:
            self._context.say(line)
