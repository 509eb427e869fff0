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
from spbench_workers.benchmarks.model.profile.row import LayerRow, PassMemory, PassTimes
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
    row = LayerRow(subject)
    batches = {count: subject.make_images(count) for count in params.batch_sizes}
    with arithmetic.activate():
        images = batches[params.batch_sizes[0]]
        _check(context, subject, row, images)
        if compares_products(precision, device):
            with arithmetic.compare_products() as errors, arithmetic.activate():
                row.compute_output(images)
            context.check_worst("products", errors.worst)
        rounds: dict[int, list[PassTimes]] = {count: [] for count in batches}

        def run_round() -> None:
            for count, images in batches.items():
                comm.Barrier()
                rounds[count].append(row.time_pass(images))

        measure(context, run_round)
        timed = {count: times[-params.iterations :] for count, times in rounds.items()}
        memory = {}
        for number, (count, images) in enumerate(batches.items()):
            context.progress("memory", number, len(batches))
            memory[count] = row.measure_pass_memory(images)
    _report(context, subject, timed, memory)


def _check(context: Context, subject: ProfiledModel, row: LayerRow, images: torch.Tensor) -> None:
    """Check that the successive layers have the output and parameters of the model."""
    owned = sum(parameter.numel() for layer in subject.layers for parameter in layer.parameters())
    context.check("parameters", abs(owned - subject.parameters), detail=f"{owned} parameters")
    outputs = row.compute_output(images)
    with torch.no_grad():
        whole_output = subject.whole_model(images)
    expected = as_tuple(whole_output)
    name = context.read_params(ProfileParams).model
    if [output.shape for output in outputs] != [tensor.shape for tensor in expected]:
        raise CannotRunError(f"the layers of {name} in a row give other shapes than the model")
    pairs = zip(outputs, expected, strict=True)
    difference = max(
        float((actual.double() - reference.double()).abs().max()) for actual, reference in pairs
    )
    largest = max(float(tensor.double().abs().max()) for tensor in expected)
    context.check("output", difference / max(largest, 1e-30), TOLERANCE, "over its largest value")


def _inject_wrong_layer(subject: ProfiledModel) -> ProfiledModel:
    """Return the model with wrong parameters and an extra one in the last layer."""
    layers = list(subject.layers)
    owning = [index for index, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    if not owning:
        raise CannotRunError("wrong-layer: this model has no parameters")
    wrong = copy.deepcopy(layers[owning[-1]])
    with torch.no_grad():
        for parameter in wrong.parameters():
            parameter.copy_(torch.randn_like(parameter))
    wrong.register_parameter("planted", nn.Parameter(torch.zeros(1)))
    layers[owning[-1]] = wrong
    return replace(subject, layers=tuple(layers))


def _report(
    context: Context,
    subject: ProfiledModel,
    timed: dict[int, list[PassTimes]],
    memory: dict[int, PassMemory],
) -> None:
    """Report the metrics of all layers, from rank 0. All ranks must call it."""
    gathered = context.world.comm.gather(timed)
    if gathered is None:
        return
    for index, layer in enumerate(subject.layers):
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in layer.parameters())
        context.metric("parameter_bytes", nbytes, layer=subject.names[index])
    for source, reader in subject.skips:
        ends = {"layer": subject.names[reader], "source": subject.names[source]}
        context.metric("skipped_layers", reader - source - 1, **ends)
    for count, used in memory.items():
        rounds = [times for by_rank in gathered for times in by_rank[count]]
        seconds = {
            kind: _scale_medians([getattr(times, kind) for times in rounds])
            for kind in ("forward", "backward", "data", "weights")
        }
        for index, name in enumerate(subject.names):
            labels: dict[str, Any] = {"layer": name, "batch_size": count}
            for kind, seconds_by_layer in seconds.items():
                context.metric(f"{kind}_ms", 1000.0 * seconds_by_layer[index], **labels)
            context.metric("activation_bytes", used.activation[index], **labels)
            context.metric("kept_bytes", used.saved[index], **labels)
            context.metric("working_bytes", used.working[index], **labels)


def _scale_medians(rounds: list[list[float]]) -> list[float]:
    """Return each layer's median, scaled so that their sum is the median of rounds.

    The plain sum of medians is smaller, because an occasional delay of any layer delays a round.
    """
    medians = [median(values) for values in zip(*rounds, strict=True)]
    total_median = median(map(sum, rounds))
    if not sum(medians):
        return medians
    return [seconds * total_median / sum(medians) for seconds in medians]
