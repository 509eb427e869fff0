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
    requested_steps: int | None = context.read_params(ModelParams).iterations
    if images.count is None:
        assert requested_steps is not None, "the catalog fills it in"
        return requested_steps
    pass_steps = images.count // step_images
    steps = requested_steps or pass_steps
    if context.world.rank == 0:
        pass_text = f"a pass over the {images.count} images takes {pass_steps}"
        reason = pass_text if requested_steps is None else f"iterations; {pass_text}"
        context.choice("epoch", f"{steps} steps", reason)
    return steps


class Epochs:
    """The epochs of a case. All ranks must call its methods together.

    Args:
        context: The case.
        engine: The model.
        step_images: Images of a step, of all replicas.
        trained_before: Steps trained before, by a checkpoint.
        epoch_steps: Steps of an epoch.
    """

    def __init__(
        self,
        context: Context,
        engine: Engine,
        step_images: int,
        trained_before: int,
        epoch_steps: int,
    ) -> None:
        params = context.read_params(ModelParams)
        self._context = context
        self._engine = engine
        self._step_images = step_images
        self._epoch_steps = epoch_steps
        self._epoch_count = params.num_epochs
        self._untimed_steps = trained_before + params.warmup
        self._path = None if engine.trainer is None else params.checkpoint
        self._save_interval = params.checkpoint_every or self._epoch_steps * self._epoch_count
        self._last_means: tuple[float, float] | None = None

    def make_pauses(self) -> Mapping[int, Callable[[], object]]:
        """Return the actions between steps, by the number of timed steps before them."""
        last_step = self._epoch_steps * self._epoch_count
        epoch_ends = set(range(self._epoch_steps, last_step + 1, self._epoch_steps))
        checkpoint_steps: set[int] = set()
        if self._path:
            regular = range(self._save_interval, last_step + 1, self._save_interval)
            checkpoint_steps = {*regular, last_step}
        # With --verbose each step has its own line.
        logged_steps = set(range(1, last_step + 1)) if self._context.verbose else set()
        return {
            steps_done: partial(self._pause, steps_done)
            for steps_done in epoch_ends | checkpoint_steps | logged_steps
        }

    def print_line(self, steps_done: int, seconds: float) -> None:
        """Print the line of the reference scripts (MPI4DL) for the last steps.

        Args:
            steps_done: Timed steps so far.
            seconds: Seconds of one of the steps since the last line, on the slowest rank.
        """
        epoch = (steps_done - 1) // self._epoch_steps
        engine = self._engine
        self._print_line(f"Epoch: {epoch} images per sec:{self._step_images / seconds:.6g}")
        if self._context.verbose and engine.trainer is not None:
            loss = engine.loss()
            accuracy = engine.accuracy()
            self._print_line(
                f"Epoch: {epoch} Step: {steps_done} Loss: {loss:.6g} Acc: {accuracy:.6g}"
            )

    def finish(self, times_ms: array[float]) -> None:
        """Print the last line of the reference scripts; report the last epoch's means."""
        images_per_second = [
            1000.0 * self._step_images / self._context.largest(ms) for ms in times_ms
        ]
        mean = sum(images_per_second) / len(images_per_second)
        self._print_line(f"Mean {mean:.6g} Median {median(images_per_second):.6g}")
        if self._last_means is not None:
            self._context.metric("epoch_loss", self._last_means[0])
            self._context.metric("accuracy", self._last_means[1])

    def _pause(self, steps_done: int) -> None:
        engine = self._engine
        if steps_done % self._epoch_steps == 0 and engine.trainer is not None:
            self._last_means = loss, accuracy = engine.epoch_means(self._epoch_steps)
            epoch = steps_done // self._epoch_steps - 1
            self._print_line(f"Epoch {epoch} Global loss: {loss:.6g} Acc {accuracy:.6g}")
            engine.end_epoch()
            engine.begin_epoch()
        if self._path and (
            steps_done % self._save_interval == 0
            or steps_done == self._epoch_steps * self._epoch_count
        ):
            checkpoint.save(Path(self._path), engine, self._untimed_steps + steps_done)

    def _print_line(self, line: str) -> None:
        if self._context.world.rank == 0:
            self._context.say(line)
