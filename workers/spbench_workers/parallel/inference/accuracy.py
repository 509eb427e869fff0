"""Accuracy of what a model has inferred, and how near it is to the same model in fp32.

The answers are those of the timed steps; their logits are kept where they are, and looked at once
the time has been taken. Each rank of the last stage counts its own images, so that no rank needs
them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_workers.context import Context
from spbench_workers.images.opening import Images
from spbench_workers.parallel.engine import Engine, Logits

FEW = 5
"""The classes among which the right one counts for ``top5``."""


@dataclass(frozen=True, slots=True)
class InferredAnswers:
    """The answers of some steps to this rank's images.

    Each image is counted on one rank alone, also where several tiles have its logits.

    Attributes:
        steps: The steps, in their order.
        logits: ``images x classes`` in fp64, on the host.
        classes: The right classes.
    """

    steps: tuple[int, ...]
    logits: torch.Tensor
    classes: torch.Tensor


def answers_of(
    engine: Engine, images: Images, inferred: Sequence[tuple[int, Logits]], num_classes: int
) -> InferredAnswers:
    """Return this rank's answers of some steps.

    Args:
        engine: The model that has inferred.
        images: Its images, which are asked for the classes.
        inferred: Steps, each with its logits.
        num_classes: The number of classes of the model.
    """
    logits, classes = [torch.empty(0, num_classes)], [torch.empty(0, dtype=torch.int64)]
    for step, found in inferred:
        images.turn_to(step)
        for index, right in engine.classes().items():
            logits.append(found[index].cpu())
            classes.append(right.cpu())
    return InferredAnswers(
        tuple(step for step, _ in inferred),
        torch.cat([one.double() for one in logits]),
        torch.cat(classes),
    )


def inferred_again(
    context: Context, engine: Engine, images: Images, answers: InferredAnswers
) -> InferredAnswers:
    """Infer the images of some answers by another engine of the same layout. All ranks call it."""
    found: list[tuple[int, Logits]] = []
    for done, step in enumerate(answers.steps):
        context.progress("fp32", done, len(answers.steps))
        images.turn_to(step)
        found.append((step, engine.evaluate()))
    context.progress("fp32", len(found), len(found))
    return answers_of(engine, images, found, answers.logits.shape[1])


def give_accuracy(context: Context, answers: InferredAnswers) -> None:
    """Report accuracy and loss over the images of all ranks. All ranks must call it."""
    logits, classes = answers.logits, answers.classes
    images, right, among_few, loss = _summed(
        context.world.comm,
        len(classes),
        _among(logits, classes, 1),
        _among(logits, classes, FEW),
        float(functional.cross_entropy(logits, classes, reduction="sum")),
    )
    context.metric("judged_images", images)
    shares = {"top1": right / images}
    if logits.shape[1] > FEW:
        shares["top5"] = among_few / images
    for name, value in (*shares.items(), ("eval_loss", loss / images)):
        context.metric(name, value)
    said = " ".join(f"{name} {value:.6g}" for name, value in shares.items())
    _say(context, f"Images {images:.0f} {said} loss {loss / images:.6g}")


def give_agreement(context: Context, answers: InferredAnswers, reference: InferredAnswers) -> None:
    """Report how near the answers are to those of fp32. All ranks must call it."""
    comm, wanted = context.world.comm, reference.logits
    same = (answers.logits.argmax(1) == wanted.argmax(1)).sum()
    images, alike = _summed(comm, len(wanted), float(same))
    off, largest = (max(comm.allgather(_largest(one))) for one in (answers.logits - wanted, wanted))
    error = off / largest if largest else math.nan
    context.metric("agreement", alike / images)
    context.metric("logit_error", error)
    _say(context, f"Agreement with fp32 {alike / images:.6g} largest logit error {error:.6g}")


def _among(logits: torch.Tensor, classes: torch.Tensor, count: int) -> float:
    """Return the number of images whose class is among the ``count`` largest logits.

    An image with a logit that is no number is not answered.
    """
    largest = logits.topk(min(count, logits.shape[1]), dim=1).indices
    found = (largest == classes[:, None]).any(1) & logits.isfinite().all(1)
    return float(found.sum())


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
