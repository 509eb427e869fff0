"""Accuracy of what a model has inferred, and how near it is to the same model in fp32.

The answers are those of the timed steps; their logits are kept where they are, and looked at once
the time has been taken. Each rank of the last stage counts its own images, or pixels, so that no
rank needs them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_parallel.engine import Engine, Logits
from spbench_parallel.images.sources import ImageSource
from spbench_workers.context import Context

TOP_CLASSES = 5
"""The classes among which the right one counts for ``top5``."""


@dataclass(frozen=True, slots=True)
class InferredAnswers:
    """The answers of some steps to this rank's images, or to their pixels.

    Each image is counted on one rank alone, also where several tiles have its logits.

    Attributes:
        steps: The steps, in their order.
        logits: A row for each, ``rows x classes`` in fp64, on the host.
        classes: The right classes.
        pixels: The rows of an image: 1 where it has one class.
    """

    steps: tuple[int, ...]
    logits: torch.Tensor
    classes: torch.Tensor
    pixels: int = 1


def collect_answers(
    engine: Engine, images: ImageSource, inferred: Sequence[tuple[int, Logits]]
) -> InferredAnswers:
    """Return this rank's answers of some steps.

    Args:
        engine: The model that has inferred.
        images: Its images, which are asked for the classes.
        inferred: Steps, each with its logits.
    """
    model = engine.plan.model
    logits = [torch.empty(0, model.classes)]
    classes = [torch.empty(0, dtype=torch.int64)]
    for step, found in inferred:
        images.set_step(step)
        for index, right in engine.targets().items():
            logits.append(found[index].cpu().movedim(1, -1).reshape(-1, model.classes))
            classes.append(right.cpu().reshape(-1))
    return InferredAnswers(
        tuple(step for step, _ in inferred),
        torch.cat([one.double() for one in logits]),
        torch.cat(classes),
        model.targets_per_image,
    )


def repeat_inference(
    context: Context, engine: Engine, images: ImageSource, answers: InferredAnswers
) -> InferredAnswers:
    """Infer the images of some answers by another engine of the same layout. All ranks call it."""
    found: list[tuple[int, Logits]] = []
    for done, step in enumerate(answers.steps):
        context.progress("fp32", done, len(answers.steps))
        images.set_step(step)
        found.append((step, engine.evaluate()))
    context.progress("fp32", len(found), len(found))
    return collect_answers(engine, images, found)


def report_accuracy(context: Context, answers: InferredAnswers) -> None:
    """Report accuracy and loss over the images of all ranks. All ranks must call it."""
    logits = answers.logits
    classes = answers.classes
    rows, right, among_few, loss = _summed(
        context.world.comm,
        len(classes),
        _among(logits, classes, 1),
        _among(logits, classes, TOP_CLASSES),
        float(functional.cross_entropy(logits, classes, reduction="sum")),
    )
    images = rows / answers.pixels
    context.metric("judged_images", images)
    shares = {"top1": right / rows}
    if logits.shape[1] > TOP_CLASSES:
        shares["top5"] = among_few / rows
    if answers.pixels > 1:
        shares["mean_iou"] = _mean_iou(context.world.comm, logits, classes)
    for name, value in (*shares.items(), ("eval_loss", loss / rows)):
        context.metric(name, value)
    said = " ".join(f"{name} {value:.6g}" for name, value in shares.items())
    _say(context, f"Images {images:.0f} {said} loss {loss / rows:.6g}")


def report_agreement(
    context: Context, answers: InferredAnswers, reference: InferredAnswers
) -> None:
    """Report how near the answers are to those of fp32. All ranks must call it."""
    comm = context.world.comm
    wanted = reference.logits
    same = (answers.logits.argmax(1) == wanted.argmax(1)).sum()
    rows, alike = _summed(comm, len(wanted), float(same))
    off, largest = (max(comm.allgather(_largest(one))) for one in (answers.logits - wanted, wanted))
    error = off / largest if largest else math.nan
    context.metric("agreement", alike / rows)
    context.metric("logit_error", error)
    _say(context, f"Agreement with fp32 {alike / rows:.6g} largest logit error {error:.6g}")


def _among(logits: torch.Tensor, classes: torch.Tensor, count: int) -> float:
    """Return the number of images whose class is among the ``count`` largest logits.

    An image with a logit that is no number is not answered.
    """
    largest = logits.topk(min(count, logits.shape[1]), dim=1).indices
    found = (largest == classes[:, None]).any(1) & logits.isfinite().all(1)
    return float(found.sum())


def _mean_iou(comm: MPI.Intracomm, logits: torch.Tensor, classes: torch.Tensor) -> float:
    """Return the mean intersection over union of the classes that are there, or told."""
    count = logits.shape[1]
    told = logits.argmax(1)
    both = torch.bincount(classes[told == classes], minlength=count)
    each = torch.bincount(classes, minlength=count) + torch.bincount(told, minlength=count)
    every = torch.stack([torch.stack(one) for one in comm.allgather((both, each - both))])
    hits, union = every.sum(0)
    return float((hits / union)[union > 0].mean())


def _summed(comm: MPI.Intracomm, *values: float) -> list[float]:
    return [sum(each) for each in zip(*comm.allgather(values), strict=True)]


def _largest(values: torch.Tensor) -> float:
    """Return the largest magnitude; infinity where one of them is no number."""
    if not values.numel():
        return 0.0
    found = float(values.abs().max())
    return math.inf if math.isnan(found) else found


def _say(context: Context, line: str) -> None:
    if context.world.rank == 0:
        context.say(line)
