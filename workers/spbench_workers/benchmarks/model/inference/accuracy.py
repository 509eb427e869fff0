"""Accuracy of inferred answers, and their agreement with the same model in fp32.

The answers are those of the timed steps. Their logits stay on the device, and are evaluated after
the timing. Each rank of the last stage counts its own images or pixels, so that no rank needs all.
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
"""The number of largest logits that count for ``top5``."""


@dataclass(frozen=True, slots=True)
class InferredAnswers:
    """The answers of some steps to this rank's images or pixels.

    Each image is counted on only one rank, even if several tiles have its logits.

    Attributes:
        steps: The steps in order.
        logits: A row per image or pixel, ``rows x classes`` in fp64, on the host.
        classes: The true classes.
        pixels: The rows of an image: 1 if it has one class.
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
        images: Its images, with their classes.
        inferred: The steps with their logits.
    """
    model = engine.plan.model
    logits = [torch.empty(0, model.classes)]
    classes = [torch.empty(0, dtype=torch.int64)]
    for step, logits_by_batch in inferred:
        images.set_step(step)
        for index, labels in engine.targets().items():
            logits.append(logits_by_batch[index].cpu().movedim(1, -1).reshape(-1, model.classes))
            classes.append(labels.cpu().reshape(-1))
    return InferredAnswers(
        tuple(step for step, _ in inferred),
        torch.cat([batch.double() for batch in logits]),
        torch.cat(classes),
        model.targets_per_image,
    )


def repeat_inference(
    context: Context, engine: Engine, images: ImageSource, answers: InferredAnswers
) -> InferredAnswers:
    """Infer the images of some answers again by another engine of the same layout.

    All ranks must call it.
    """
    inferred: list[tuple[int, Logits]] = []
    for done, step in enumerate(answers.steps):
        context.progress("fp32", done, len(answers.steps))
        images.set_step(step)
        inferred.append((step, engine.evaluate()))
    context.progress("fp32", len(inferred), len(inferred))
    return collect_answers(engine, images, inferred)


def report_accuracy(context: Context, answers: InferredAnswers) -> None:
    """Report accuracy and loss over the images of all ranks. All ranks must call it."""
    logits = answers.logits
    classes = answers.classes
    row_count, top1_count, top5_count, loss_sum = _sum_over_ranks(
        context.world.comm,
        len(classes),
        _count_correct(logits, classes, 1),
        _count_correct(logits, classes, TOP_CLASSES),
        float(functional.cross_entropy(logits, classes, reduction="sum")),
    )
    image_count = row_count / answers.pixels
    context.metric("judged_images", image_count)
    metrics = {"top1": top1_count / row_count}
    if logits.shape[1] > TOP_CLASSES:
        metrics["top5"] = top5_count / row_count
    if answers.pixels > 1:
        metrics["mean_iou"] = _compute_mean_iou(context.world.comm, logits, classes)
    for name, value in (*metrics.items(), ("eval_loss", loss_sum / row_count)):
        context.metric(name, value)
    text = " ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    _print_line(context, f"Images {image_count:.0f} {text} loss {loss_sum / row_count:.6g}")


def report_agreement(
    context: Context, answers: InferredAnswers, reference: InferredAnswers
) -> None:
    """Report the agreement of the answers with those of fp32. All ranks must call it."""
    comm = context.world.comm
    reference_logits = reference.logits
    own_same_count = (answers.logits.argmax(1) == reference_logits.argmax(1)).sum()
    row_count, same_count = _sum_over_ranks(comm, len(reference_logits), float(own_same_count))
    differences = answers.logits - reference_logits
    max_difference = max(comm.allgather(_max_magnitude(differences)))
    max_logit = max(comm.allgather(_max_magnitude(reference_logits)))
    relative_error = max_difference / max_logit if max_logit else math.nan
    context.metric("agreement", same_count / row_count)
    context.metric("logit_error", relative_error)
    _print_line(
        context,
        f"Agreement with fp32 {same_count / row_count:.6g} "
        f"largest logit error {relative_error:.6g}",
    )


def _count_correct(logits: torch.Tensor, classes: torch.Tensor, top_count: int) -> float:
    """Return the number of images with their class among the largest logits.

    The class must be among the ``top_count`` largest. An image with a NaN or infinite logit does
    not count.
    """
    top_classes = logits.topk(min(top_count, logits.shape[1]), dim=1).indices
    correct = (top_classes == classes[:, None]).any(1) & logits.isfinite().all(1)
    return float(correct.sum())


def _compute_mean_iou(comm: MPI.Intracomm, logits: torch.Tensor, classes: torch.Tensor) -> float:
    """Return the mean intersection over union of all true or predicted classes."""
    class_count = logits.shape[1]
    predicted = logits.argmax(1)
    hits = torch.bincount(classes[predicted == classes], minlength=class_count)
    appearances = torch.bincount(classes, minlength=class_count) + torch.bincount(
        predicted, minlength=class_count
    )
    counts_by_rank = comm.allgather((hits, appearances - hits))
    hits, union = torch.stack([torch.stack(counts) for counts in counts_by_rank]).sum(0)
    return float((hits / union)[union > 0].mean())


def _sum_over_ranks(comm: MPI.Intracomm, *values: float) -> list[float]:
    return [sum(column) for column in zip(*comm.allgather(values), strict=True)]


def _max_magnitude(values: torch.Tensor) -> float:
    """Return the largest magnitude; infinity if a value is NaN."""
    if not values.numel():
        return 0.0
    largest = float(values.abs().max())
    return math.inf if math.isnan(largest) else largest


def _print_line(context: Context, line: str) -> None:
    if context.world.rank == 0:
        context.say(line)
