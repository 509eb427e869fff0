"""The benchmark ``model.profile``: a model's layers one by one, at several batch sizes."""

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
"""Of the layers' output beside the whole model's, over its largest value."""


def run(context: Context) -> None:
    """Run the case: every rank does the same at once, and the medians are of all of them."""
    params = context.read_params(ProfileParams)
    comm = context.world.comm
    precision = PRECISIONS[params.precision]
    place = choose_device(context, tf32=precision.tf32)
    subject = load_subject(context.params, place, context.seed)
    if context.planted("wrong-layer"):
        subject = _with_a_wrong_layer(subject)
    arithmetic = Arithmetic(MPI.COMM_SELF, precision, subject.layers, place, learns=True)
    row = LayerRow(subject)
    batches = {count: subject.make_images(count) for count in params.batch_sizes}
    with arithmetic.activate():
        images = batches[params.batch_sizes[0]]
        _check(context, subject, row, images)
        if compares_products(precision, place):
            with arithmetic.compare_products() as errors, arithmetic.activate():
                row.compute_output(images)
            context.check_worst("products", errors.worst)
        rounds: dict[int, list[PassTimes]] = {count: [] for count in batches}

        def go() -> None:
            for count, images in batches.items():
                comm.Barrier()
                rounds[count].append(row.time_pass(images))

        measure(context, go)
        timed = {count: kept[-params.iterations :] for count, kept in rounds.items()}
        memory = {}
        for number, (count, images) in enumerate(batches.items()):
            context.progress("memory", number, len(batches))
            memory[count] = row.measure_pass_memory(images)
    _tell(context, subject, timed, memory)


def _check(context: Context, subject: ProfiledModel, row: LayerRow, images: torch.Tensor) -> None:
    """Compare the layers in a row with the whole model, so that the profile is the model's own."""
    owned = sum(each.numel() for layer in subject.layers for each in layer.parameters())
    context.check("parameters", abs(owned - subject.parameters), detail=f"{owned} parameters")
    found = row.compute_output(images)
    with torch.no_grad():
        made = subject.whole_model(images)
    wanted = as_tuple(made)
    name = context.read_params(ProfileParams).model
    if [one.shape for one in found] != [one.shape for one in wanted]:
        raise CannotRunError(f"the layers of {name} in a row give other shapes than the model")
    pairs = zip(found, wanted, strict=True)
    apart = max(float((one.double() - other.double()).abs().max()) for one, other in pairs)
    largest = max(float(one.double().abs().max()) for one in wanted)
    context.check("output", apart / max(largest, 1e-30), TOLERANCE, "over its largest value")


def _with_a_wrong_layer(subject: ProfiledModel) -> ProfiledModel:
    """Plant the fault ``wrong-layer``: the last layer with parameters has others, and one more."""
    layers = list(subject.layers)
    owning = [place for place, layer in enumerate(layers) if any(True for _ in layer.parameters())]
    if not owning:
        raise CannotRunError("wrong-layer: this model has no parameters")
    wrong = copy.deepcopy(layers[owning[-1]])
    with torch.no_grad():
        for parameter in wrong.parameters():
            parameter.copy_(torch.randn_like(parameter))
    wrong.register_parameter("planted", nn.Parameter(torch.zeros(1)))
    layers[owning[-1]] = wrong
    return replace(subject, layers=tuple(layers))


def _tell(
    context: Context,
    subject: ProfiledModel,
    timed: dict[int, list[PassTimes]],
    memory: dict[int, PassMemory],
) -> None:
    """Report the metrics of all layers, from rank 0. All ranks must call it."""
    every = context.world.comm.gather(timed)
    if every is None:
        return
    for place, layer in enumerate(subject.layers):
        parameters = sum(each.numel() * each.element_size() for each in layer.parameters())
        context.metric("parameter_bytes", parameters, layer=subject.names[place])
    for source, reader in subject.skips:
        ends = {"layer": subject.names[reader], "source": subject.names[source]}
        context.metric("skipped_layers", reader - source - 1, **ends)
    for count, used in memory.items():
        rounds = [times for told in every for times in told[count]]
        seconds = {
            each: _typical([getattr(times, each) for times in rounds])
            for each in ("forward", "backward", "data", "weights")
        }
        for place, name in enumerate(subject.names):
            of: dict[str, Any] = {"layer": name, "batch_size": count}
            for each, taken in seconds.items():
                context.metric(f"{each}_ms", 1000.0 * taken[place], **of)
            context.metric("activation_bytes", used.activation[place], **of)
            context.metric("kept_bytes", used.kept[place], **of)
            context.metric("working_bytes", used.working[place], **of)


def _typical(rounds: list[list[float]]) -> list[float]:
    """Return each layer's median, all scaled so that they add up to the median of whole rounds.

    The sum of medians is less than that: a delay of one layer now and then delays a whole round.
    """
    each = [median(values) for values in zip(*rounds, strict=True)]
    whole = median(map(sum, rounds))
    return [value * whole / sum(each) for value in each] if sum(each) else each
