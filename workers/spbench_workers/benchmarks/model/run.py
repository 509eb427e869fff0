"""The benchmarks ``model.resnet`` and ``model.amoebanet``: a model over many ranks."""

from __future__ import annotations

import os
from array import array
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from spbench_core.catalog.typed_params import require_value
from spbench_core.models.proxy import describe_model
from spbench_parallel.checkpoints import checkpoint, state_dict
from spbench_parallel.device.formats import set_fp32_precision
from spbench_parallel.device.memory import release_memory
from spbench_parallel.engine import Engine
from spbench_parallel.errors import CannotRunError
from spbench_parallel.full_size.check import full_size_plan
from spbench_parallel.images.sources import ImageSource, open_images
from spbench_parallel.p2p.opening import check_nccl
from spbench_parallel.peak_memory import PeakMemory
from spbench_parallel.plan import ModelPlan
from spbench_parallel.precision.formats import FP32
from spbench_workers.benchmarks.model import fault_injection
from spbench_workers.benchmarks.model.baseline import MeasuredRun, report_baseline
from spbench_workers.benchmarks.model.case import ModelCase, build_case
from spbench_workers.benchmarks.model.entry import FAULTS_OF_LEARNING, FULL_SIZE_FAULTS
from spbench_workers.benchmarks.model.epochs import Epochs, count_epoch_steps
from spbench_workers.benchmarks.model.inference.accuracy import (
    InferredAnswers,
    collect_answers,
    repeat_inference,
    report_accuracy,
    report_agreement,
)
from spbench_workers.benchmarks.model.inference.latency import (
    FAULT,
    draw_arrivals,
    report_latency,
    report_open_latency,
    serve,
)
from spbench_workers.benchmarks.model.params import ModelParams, OwnNetworkParams
from spbench_workers.benchmarks.model.proxy_plan import ProxyPlan, choose_proxy, count_images
from spbench_workers.benchmarks.model.regime_checks import (
    check_bits,
    check_full_size,
    check_products,
)
from spbench_workers.benchmarks.model.regimes import FULL_SIZE, Regime, select_regimes
from spbench_workers.benchmarks.model.steps import Steps, report_figures, report_memory
from spbench_workers.benchmarks.model.validation import Validation, make_plans
from spbench_workers.binding.before_mpi import kernel_loading
from spbench_workers.context import Context
from spbench_workers.timing import measure

_OF_OPERATORS = (
    "zero-weight-gradient",
    "zero-input-gradient",
    "scale-weight-gradient",
    "scale-input-gradient",
)
"""The faults that only a comparison of operators notices at full size."""


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(ModelParams)
    case = build_case(context)
    _refuse_early(context, case)
    # First of all: missing images are told before minutes of comparing.
    images = _images(context, case.plan)
    if case.plan.backend == "nccl" and context.world.rank == 0:
        context.choice("kernel_loading", *kernel_loading(os.environ))
    smaller = params.validate == "auto" or params.baseline
    proxy = choose_proxy(context, case) if smaller else None
    _validate(context, case, proxy)
    times, used = _time(context, case, images)
    if Regime.FULL_SIZE in select_regimes(context.params):
        _check_full_size(context, case)
    if params.baseline and proxy is not None:
        # Rank 0 may need what the others still hold of the GPU that they share.
        release_memory()
        seconds = median([context.largest(time) for time in times]) / 1000.0
        report_baseline(context, case, MeasuredRun(seconds, used), proxy, _make_ready)


def _validate(context: Context, case: ModelCase, proxy: ProxyPlan | None) -> None:
    """Compare the ranks with one process: the case, or with ``validate: auto`` its proxy."""
    params = context.read_params(ModelParams)
    kind = params.validate
    speaks = context.world.rank == 0
    if kind == "off":
        if speaks:
            context.choice("validate", "off", "nothing was compared with the sequential model")
        return
    small = case.make_small_plan(params.batch_size)
    model = describe_model(case.plan.model)
    if kind == "auto" and proxy is not None:
        small = proxy.plan
        model = str(proxy.proxy)
    if speaks:
        context.choice("validate", kind, _compared(case, small, model))
    for plan in make_plans(small):
        Validation(context, plan, case.training, fault_injection.inject_fault, _make_ready).run()
    if Regime.BITS in select_regimes(context.params):
        check_bits(context, small, case.training, fault_injection.inject_fault)
    fault_injection.remove_faults()
    check_products(context, small)


def _check_full_size(context: Context, case: ModelCase) -> None:
    """Check a step of a small batch at full size, by what each rank has."""
    small = full_size_plan(case.make_small_plan(context.read_params(ModelParams).batch_size))
    if context.planted_in_job("full:tile-batchnorm"):
        small = replace(small, statistics="tile")
    if context.world.rank == 0:
        names = [name for name in FULL_SIZE if name in context.entry.list_checks(context.params)]
        size = _compared(case, small, describe_model(small.model))
        context.choice(
            "full_size", ", ".join(names) or "nothing", f"{size}, {small.precision.name}"
        )
    check_full_size(
        context, small, case.training, partial(fault_injection.inject_fault, prefix="full:")
    )
    fault_injection.remove_faults()
    release_memory()


def _compared(case: ModelCase, small: ModelPlan, model: str) -> str:
    """Return what is compared with one process, and at which size, in words."""
    grids = [f"{stage.grid} tiles" for stage in case.plan.layout.stages if stage.spatial]
    compared = count_images(small)
    if compared <= case.images:
        images = f"{compared} of {case.images} images"
    else:
        images = f"{compared} images, since {case.images} are too few for batch normalisation"
    return ", ".join([model, *grids, images])


def _refuse_early(context: Context, case: ModelCase) -> None:
    """Refuse what cannot be, before the first second of work. All ranks must call it.

    Raises:
        CannotRunError: The backend cannot serve these ranks, the checkpoint is not there or cannot
            be written, or a fault changes nothing; all ranks raise it.
    """
    _refuse_faults(context, case)
    if case.plan.backend == "nccl":
        check_nccl(context.world.comm, case.plan.device)
    if (file := context.read_params(OwnNetworkParams).save_weights) is not None:
        state_dict.check(Path(file), context.world.comm)
    if (path := context.read_params(ModelParams).checkpoint) is not None:
        model = case.plan.model
        learns = case.training is not None
        checkpoint.check(Path(path), context.world.comm, model, learns=learns)


def _refuse_faults(context: Context, case: ModelCase) -> None:
    """Refuse a fault that changes nothing in this case, or comes where nothing is checked.

    Raises:
        CannotRunError: ``tile-batchnorm`` is asked for, and nothing is normalised by tile; or
            ``uncounted-wait``, and no request waits; or a fault of learning, to infer; or one at
            full size, which only ``validate: auto`` looks for.
    """
    params = context.read_params(ModelParams)
    if context.planted_in_job(FAULT) and params.arrival != "poisson":
        raise CannotRunError(f"{FAULT}: no request waits here; take arrival poisson, to infer")
    if case.training is None:
        for fault in sorted(FAULTS_OF_LEARNING):
            if context.planted_in_job(fault) or context.planted_in_job(f"full:{fault}"):
                raise CannotRunError(
                    f"{fault} spoils what is learnt, and inference learns nothing; leave out "
                    "enable_evaluation"
                )
    name = params.validate
    unseen = Regime.FULL_SIZE not in select_regimes(context.params)
    if unseen and any(map(context.planted_in_job, FULL_SIZE_FAULTS)):
        raise CannotRunError(f"faults at full size are looked for by validate auto, not by {name}")
    unchecked = "operators" not in context.entry.list_checks(context.params)
    for fault in _OF_OPERATORS:
        if unchecked and context.planted_in_job(f"full:{fault}"):
            raise CannotRunError(
                f"full:{fault}: operators of one rank are not compared at full size here; take "
                f"{fault}, or precision fp32 without halo_D2"
            )
    by_tile = case.plan.statistics == "tile" or context.planted_in_job("full:tile-batchnorm")
    if by_tile and all(stage.ranks == 1 for stage in case.plan.layout.stages):
        raise CannotRunError(
            "tile-batchnorm: every rank has whole images here; take scheme sp, or local_DP 2"
        )


def _make_ready(engine: Engine) -> None:
    """Calibrate and quantise the engine, where the model is to infer in int8."""
    if engine.plan.precision.int8:
        engine.arithmetic.quantise(engine.calibrate())


def _time(context: Context, case: ModelCase, images: ImageSource) -> tuple[array[float], float]:
    """Time the steps, and report their metrics.

    Returns:
        This rank's times in ms, and the bytes that the ranks of a replica have used together.
    """
    params = context.read_params(ModelParams)
    plan = case.plan
    peak = PeakMemory(plan.device)
    engine = Engine(context.world.comm, plan, images, case.training)
    begun = _take_up(context, engine)
    _make_ready(engine)
    steps = Steps(engine, images, begun, params.warmup)
    an_epoch = count_epoch_steps(context, images, case.images)
    epochs = Epochs(context, engine, case.images, begun, an_epoch)
    count = an_epoch * params.num_epochs
    times = measure(
        context,
        steps.run_step,
        iterations=count,
        pauses=epochs.make_pauses(),
        after_batch=epochs.print_line,
    )
    steps.report(context, count)
    epochs.finish(times)
    context.metric("peak_memory_mb", peak.megabytes())
    report_memory(context, engine, steps.activations)
    if peak.since_start and context.world.rank == 0:
        context.choice("peak_memory", "of the process", "the system does not reset it")
    counted = context.world.rank < plan.layout.ranks_per_replica
    used: float = context.world.comm.allreduce(peak.growth if counted else 0.0)
    report_figures(context, case, engine, times)
    answers = None
    if case.training is None:
        answers = collect_answers(engine, images, steps.list_answers(count))
        _give_latency(context, steps, times)
    images.close()
    if (file := context.read_params(OwnNetworkParams).save_weights) is not None:
        state_dict.save(Path(file), engine)
    engine.free()
    if answers is not None:
        report_accuracy(context, answers)
        _compare(context, plan, answers)
    return times, used


def _give_latency(context: Context, steps: Steps, times: array[float]) -> None:
    """Report the latency of a closed load, as it was timed, or serve an open load."""
    params = context.read_params(ModelParams)
    if params.arrival == "closed":
        report_latency(context, [context.largest(time) for time in times])
        return
    seed = context.seed_for("arrivals")
    arrived = draw_arrivals(len(times), require_value(params.arrival_rate), seed)
    report_open_latency(context, serve(context, steps.run_step, arrived))


def _compare(context: Context, plan: ModelPlan, answers: InferredAnswers) -> None:
    """Hold the answers against those of the same weights in fp32, on the same layout."""
    if plan.precision is FP32:
        _say_reference(context, "none", "fp32 is what other formats are held against")
        return
    release_memory()
    try:
        set_fp32_precision(plan.device)
    except CannotRunError as error:
        _say_reference(context, "none", str(error))
        return
    exact = replace(plan, precision=FP32)
    images = _images(context, exact)
    engine = Engine(context.world.comm, exact, images)
    _load(context, engine)
    again = repeat_inference(context, engine, images, answers)
    images.close()
    engine.free()
    set_fp32_precision(plan.device, tf32=plan.precision.tf32)
    report_agreement(context, answers, again)
    reason = f"the same weights, layout and images of the last {len(again.steps)} steps"
    _say_reference(context, "fp32", reason)


def _say_reference(context: Context, reference: str, reason: str) -> None:
    if context.world.rank == 0:
        context.choice("agreement_with", reference, reason)


def _images(context: Context, plan: ModelPlan) -> ImageSource:
    params = context.read_params(ModelParams)
    return open_images(
        params.app,
        image=plan.model.image,
        num_classes=plan.model.classes,
        masked=plan.model.is_segmentation,
        batch=sum(batch.size for batch in plan.batches),
        replicas=plan.layout.replicas,
        seed=context.seed,
        datapath=params.datapath,
        num_workers=params.num_workers or 0,
        dtype=plan.dtype,
        device=plan.device,
    )


def _take_up(context: Context, engine: Engine) -> int:
    """Load the checkpoint, if there is one; return the number of steps trained before."""
    begun = _load(context, engine)
    path = context.read_params(ModelParams).checkpoint
    if engine.trainer is None and context.world.rank == 0:
        if path is None:
            context.choice("weights", f"random, of seed {context.seed}", "no checkpoint was given")
        else:
            context.choice("weights", f"of {path}", f"a checkpoint after {begun} steps")
    return begun


def _load(context: Context, engine: Engine) -> int:
    """Load the checkpoint, if there is one; return its number of steps, or 0."""
    path = context.read_params(ModelParams).checkpoint
    learns = engine.trainer is not None
    if path is not None and (not learns or context.world.comm.bcast(Path(path).exists())):
        return checkpoint.load(Path(path), engine, weights_only=not learns)
    return 0
