"""Benchmark ``model.profile``: a model's layers, measured at several batch sizes."""

from __future__ import annotations

import copy
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from spbench_parallel.errors import CannotRunError
from spbench_parallel.layer_times import as_tuple
from spbench_parallel.precision.arithmetic import Arithmetic
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.precision.product_errors import compares_products
from spbench_workers.benchmarks.model.profile.entry import ProfileParams
from spbench_workers.benchmarks.model.profile.layer_sequence import (
    LayerSequence,
    PassMemory,
    PassTimes,
)
from spbench_workers.benchmarks.model.profile.subject import ProfiledModel, load_subject
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.timing import measure

TOLERANCE = 1e-5
"""Largest difference of the layers' output from the model's, over its largest value."""


def run(context: Context) -> None:
    """Run the case: all ranks do the same at once, and medians are over all of them."""
    params = context.read_params(ProfileParams)
    comm = context.world.comm
    precision = PRECISIONS[params.precision]
    device = choose_device(context, tf32=precision.tf32)
    subject = load_subject(context.params, device, context.seed)
    if context.planted("wrong-layer"):
        subject = _inject_wrong_layer(subject)
    arithmetic = Arithmetic(MPI.COMM_SELF, precision, subject.layers, device, learns=True)
    sequence = LayerSequence(subject)
    images_by_size = {
        batch_size: subject.make_images(batch_size) for batch_size in params.batch_sizes
    }
    with arithmetic.activate():
        images = images_by_size[params.batch_sizes[0]]
        _check(context, subject, sequence, images)
        if compares_products(precision, device):
            with arithmetic.compare_products() as errors, arithmetic.activate():
                sequence.compute_output(images)
            context.check_worst("products", errors.worst)
        times_by_size: dict[int, list[PassTimes]] = {
            batch_size: [] for batch_size in images_by_size
        }

        def run_round() -> None:
            for batch_size, images in images_by_size.items():
                comm.Barrier()
                times_by_size[batch_size].append(sequence.time_pass(images))

        measure(context, run_round)
        timed_by_size = {
            batch_size: times[-params.iterations :] for batch_size, times in times_by_size.items()
        }
        memory_by_size = {}
        for number, (batch_size, images) in enumerate(images_by_size.items()):
            context.progress("memory", number, len(images_by_size))
            memory_by_size[batch_size] = sequence.measure_pass_memory(images)
    _report(context, subject, timed_by_size, memory_by_size)


def _check(
    context: Context, subject: ProfiledModel, sequence: LayerSequence, images: torch.Tensor
) -> None:
    """Check that the successive layers have the output and parameters of the model."""
    parameter_count = sum(
        parameter.numel() for layer in subject.layers for parameter in layer.parameters()
    )
    context.check(
        "parameters",
        abs(parameter_count - subject.parameters),
        detail=f"{parameter_count} parameters",
    )
    outputs = sequence.compute_output(images)
    with torch.no_grad():
        whole_output = subject.whole_model(images)
    expected = as_tuple(whole_output)
    name = context.read_params(ProfileParams).model
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise CannotRunError(f"the layers of {name} in a row give other shapes than the model")
    pairs = zip(outputs, expected, strict=True)
    max_difference = max(
        float((actual.double() - reference.double()).abs().max()) for actual, reference in pairs
    )
    max_output = max(float(tensor.double().abs().max()) for tensor in expected)
    context.check(
        "output", max_difference / max(max_output, 1e-30), TOLERANCE, "over its largest value"
    )


def _inject_wrong_layer(subject: ProfiledModel) -> ProfiledModel:
    """Return the model with wrong parameters and an extra one in the last layer."""
    layers = list(subject.layers)
    indices_with_parameters = [
        index for index, layer in enumerate(layers) if any(True for _ in layer.parameters())
    ]
    if not indices_with_parameters:
        raise CannotRunError("wrong-layer: this model has no parameters")
    wrong_layer = copy.deepcopy(layers[indices_with_parameters[-1]])
    with torch.no_grad():
        for parameter in wrong_layer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    wrong_layer.register_parameter("planted", nn.Parameter(torch.zeros(1)))
    layers[indices_with_parameters[-1]] = wrong_layer
    return replace(subject, layers=tuple(layers))


def _report(
    context: Context,
    subject: ProfiledModel,
    times_by_size: dict[int, list[PassTimes]],
    memory_by_size: dict[int, PassMemory],
) -> None:
    """Report the metrics of all layers, from rank 0. All ranks must call it."""
    times_by_rank = context.world.comm.gather(times_by_size)
    if times_by_rank is None:
        return
    for index, layer in enumerate(subject.layers):
        parameter_bytes = sum(
            tensor.numel() * tensor.element_size() for tensor in layer.parameters()
        )
        context.metric("parameter_bytes", parameter_bytes, layer=subject.names[index])
    for source, reader in subject.skips:
        skip_labels = {"layer": subject.names[reader], "source": subject.names[source]}
        context.metric("skipped_layers", reader - source - 1, **skip_labels)
    for batch_size, used in memory_by_size.items():
        pass_times = [times for by_rank in times_by_rank for times in by_rank[batch_size]]
        seconds_by_kind = {
            kind: _scale_medians_to_total([getattr(times, kind) for times in pass_times])
            for kind in ("forward", "backward", "data", "weights")
        }
        for index, name in enumerate(subject.names):
            labels: dict[str, Any] = {"layer": name, "batch_size": batch_size}
            for kind, seconds_by_layer in seconds_by_kind.items():
                context.metric(f"{kind}_ms", 1000.0 * seconds_by_layer[index], **labels)
            context.metric("activation_bytes", used.activation[index], **labels)
            context.metric("kept_bytes", used.saved[index], **labels)
            context.metric("working_bytes", used.working[index], **labels)


def _scale_medians_to_total(rounds: list[list[float]]) -> list[float]:
    """Return each layer's median, scaled so that their sum is the median of rounds.

    The plain sum of medians is smaller, because an occasional delay of any layer delays a round.
    """
    median_seconds = [median(values) for values in zip(*rounds, strict=True)]
    median_total = median(map(sum, rounds))
    if not sum(median_seconds):
        return median_seconds
    return [seconds * median_total / sum(median_seconds) for seconds in median_seconds]
