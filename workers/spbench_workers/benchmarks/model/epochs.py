"""Epochs: learning rate decay, checkpoints and printed lines between timed steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from spbench_parallel.checkpoints import checkpoint
from spbench_parallel.engine import Engine
from spbench_parallel.images.sources import ImageSource
from spbench_workers.benchmarks.model.params import ModelParams
from spbench_workers.context import Context


def count_epoch_steps(context: Context, images: ImageSource, step_images: int) -> int:
    """Return the steps of an epoch from the parameters, or of a pass over a data set.

    Args:
        context: The case.
        images: The images.
        step_images: Images of a step, of all replicas.
    """
    requested: int | None = context.read_params(ModelParams).iterations
    if images.count is None:
        assert requested is not None, "the catalog fills it in"
        return requested
    steps = requested or images.count // step_images
    if context.world.rank == 0:
        pass_text = f"a pass over the {images.count} images takes {images.count // step_images}"
        reason = pass_text if requested is None else f"iterations; {pass_text}"
        context.choice("epoch", f"{steps} steps", reason)
    return steps


class Epochs:
    """The epochs of a case. All ranks must call its methods together.

    Args:
        context: The case.
        engine: The model.
        images: Number of images of a step, of all replicas.
        trained_before: Number of steps trained before.
        steps: Number of steps of an epoch.
    """

    def __init__(
        self, context: Context, engine: Engine, images: int, trained_before: int, steps: int
    ) -> None:
        params = context.read_params(ModelParams)
        self._context = context
        self._engine = engine
        self._images = images
        self._steps = steps
        self._count = params.num_epochs
        self._trained = trained_before + params.warmup
        self._path = None if engine.trainer is None else params.checkpoint
        self._save_interval = params.checkpoint_every or self._steps * self._count
        self._means: tuple[float, float] | None = None

    def make_pauses(self) -> Mapping[int, Callable[[], object]]:
        """Return the actions between steps, by the number of timed steps before them."""
        last = self._steps * self._count
        ends = set(range(self._steps, last + 1, self._steps))
        saves = (
            set(range(self._save_interval, last + 1, self._save_interval)) | {last}
            if self._path
            else set()
        )
        # With --verbose each step has its own line.
        logged = set(range(1, last + 1)) if self._context.verbose else set()
        return {done: partial(self._pause, done) for done in ends | saves | logged}

    def print_line(self, done: int, seconds: float) -> None:
        """Print the line of the reference scripts (MPI4DL) for the last steps.

        Args:
            done: Timed steps so far.
            seconds: Seconds of one of the steps since the last line, on the slowest rank.
        """
        epoch = (done - 1) // self._steps
        engine = self._engine
        self._print_line(f"Epoch: {epoch} images per sec:{self._images / seconds:.6g}")
        if self._context.verbose and engine.trainer is not None:
            loss = engine.loss()
            accuracy = engine.accuracy()
            self._print_line(f"Epoch: {epoch} Step: {done} Loss: {loss:.6g} Acc: {accuracy:.6g}")

    def finish(self, times: array[float]) -> None:
        """Print the last line of the reference scripts; report the last epoch's means."""
        rates = [1000.0 * self._images / self._context.largest(time) for time in times]
        self._print_line(f"Mean {sum(rates) / len(rates):.6g} Median {median(rates):.6g}")
        if self._means is not None:
            self._context.metric("epoch_loss", self._means[0])
            self._context.metric("accuracy", self._means[1])

    def _pause(self, done: int) -> None:
        engine = self._engine
        if done % self._steps == 0 and engine.trainer is not None:
            self._means = loss, accuracy = engine.epoch_means(self._steps)
            epoch = done // self._steps - 1
            self._print_line(f"Epoch {epoch} Global loss: {loss:.6g} Acc {accuracy:.6g}")
            engine.end_epoch()
            engine.begin_epoch()
        if self._path and (done % self._save_interval == 0 or done == self._steps * self._count):
            checkpoint.save(Path(self._path), engine, self._trained + done)

    def _print_line(self, line: str) -> None:
        if self._context.world.rank == 0:
            self._context.say(line)
