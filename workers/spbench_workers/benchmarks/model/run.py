"""Benchmarks ``model.resnet``, ``model.amoebanet`` and ``model.network``."""

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
from spbench_workers.benchmarks.model.entry import (
    FAULTS_OF_LEARNING,
    FULL_SIZE_FAULTS,
    OPERATOR_FAULTS,
)
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
from spbench_workers.benchmarks.model.regimes import FULL_SIZE_CHECKS, Regime, select_regimes
from spbench_workers.benchmarks.model.steps import Steps, report_figures, report_memory
from spbench_workers.benchmarks.model.validation import Validation, make_plans
from spbench_workers.binding.before_mpi import kernel_loading
from spbench_workers.context import Context
from spbench_workers.timing import measure


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(ModelParams)
    case = build_case(context)
    _check_early(context, case)
    # Images are opened first, so that missing files are reported before a long comparison.
    images = _open_images(context, case.plan)
    if case.plan.backend == "nccl" and context.world.rank == 0:
        context.choice("kernel_loading", *kernel_loading(os.environ))
    needs_proxy = params.validate == "auto" or params.baseline
    proxy = choose_proxy(context, case) if needs_proxy else None
    _validate(context, case, proxy)
    times_ms, used_bytes = _time_steps(context, case, images)
    if Regime.FULL_SIZE in select_regimes(context.params):
        _check_full_size(context, case)
    if params.baseline and proxy is not None:
        # Rank 0 may need GPU memory that other ranks of the same GPU still cache.
        release_memory()
        median_seconds = median([context.largest(ms) for ms in times_ms]) / 1000.0
        report_baseline(
            context, case, MeasuredRun(median_seconds, used_bytes), proxy, _prepare_engine
        )


def _validate(context: Context, case: ModelCase, proxy: ProxyPlan | None) -> None:
    """Compare the case, or with ``validate: auto`` its proxy, with one process."""
    params = context.read_params(ModelParams)
    mode = params.validate
    reports = context.world.rank == 0
    if mode == "off":
        if reports:
            context.choice("validate", "off", "nothing was compared with the sequential model")
        return
    small_plan = case.make_small_plan(params.batch_size)
    model_text = describe_model(case.plan.model)
    if mode == "auto" and proxy is not None:
        small_plan = proxy.plan
        model_text = str(proxy.proxy)
    if reports:
        context.choice("validate", mode, _describe_comparison(case, small_plan, model_text))
    for plan in make_plans(small_plan):
        Validation(
            context, plan, case.training, fault_injection.inject_fault, _prepare_engine
        ).run()
    if Regime.BITS in select_regimes(context.params):
        check_bits(context, small_plan, case.training, fault_injection.inject_fault)
    fault_injection.remove_faults()
    check_products(context, small_plan)


def _check_full_size(context: Context, case: ModelCase) -> None:
    """Check a step of a small batch at full size, each rank with its own part."""
    small_plan = full_size_plan(case.make_small_plan(context.read_params(ModelParams).batch_size))
    if context.planted_in_job("full:tile-batchnorm"):
        small_plan = replace(small_plan, statistics="tile")
    if context.world.rank == 0:
        names = [
            name for name in FULL_SIZE_CHECKS if name in context.entry.list_checks(context.params)
        ]
        comparison = _describe_comparison(case, small_plan, describe_model(small_plan.model))
        context.choice(
            "full_size", ", ".join(names) or "nothing", f"{comparison}, {small_plan.precision.name}"
        )
    check_full_size(
        context, small_plan, case.training, partial(fault_injection.inject_fault, prefix="full:")
    )
    fault_injection.remove_faults()
    release_memory()


def _describe_comparison(case: ModelCase, small_plan: ModelPlan, model_text: str) -> str:
    """Describe the model and the images that are compared with one process."""
    grid_texts = [f"{stage.grid} tiles" for stage in case.plan.layout.stages if stage.spatial]
    compared_images = count_images(small_plan)
    if compared_images <= case.images:
        images_text = f"{compared_images} of {case.images} images"
    else:
        images_text = (
            f"{compared_images} images, since {case.images} are too few for batch normalisation"
        )
    return ", ".join([model_text, *grid_texts, images_text])


def _check_early(context: Context, case: ModelCase) -> None:
    """Check backend, files and faults before any work. All ranks must call it.

    Raises:
        CannotRunError: The backend does not support these ranks, the checkpoint is missing or
            cannot be written, or a fault has no effect; all ranks raise it.
    """
    _check_faults(context, case)
    if case.plan.backend == "nccl":
        check_nccl(context.world.comm, case.plan.device)
    if (file := context.read_params(OwnNetworkParams).save_weights) is not None:
        state_dict.check(Path(file), context.world.comm)
    if (path := context.read_params(ModelParams).checkpoint) is not None:
        model = case.plan.model
        learns = case.training is not None
        checkpoint.check(Path(path), context.world.comm, model, learns=learns)


def _check_faults(context: Context, case: ModelCase) -> None:
    """Check that a fault has an effect in this case and is checked.

    Raises:
        CannotRunError: ``tile-batchnorm`` without normalisation by tile, ``uncounted-wait``
            without waiting requests, a fault of training in inference, or a fault at full size
            without a check that finds it.
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

    mode = params.validate
    skips_full_size = Regime.FULL_SIZE not in select_regimes(context.params)
    if skips_full_size and any(map(context.planted_in_job, FULL_SIZE_FAULTS)):
        raise CannotRunError(f"faults at full size are looked for by validate auto, not by {mode}")

    skips_operators = "operators" not in context.entry.list_checks(context.params)
    for fault in OPERATOR_FAULTS:
        if skips_operators and context.planted_in_job(f"full:{fault}"):
            raise CannotRunError(
                f"full:{fault}: operators of one rank are not compared at full size here; take "
                f"{fault}, or precision fp32 without halo_D2"
            )

    full_size_by_tile = context.planted_in_job("full:tile-batchnorm")
    normalises_by_tile = case.plan.statistics == "tile" or full_size_by_tile
    if normalises_by_tile and all(stage.rank_count == 1 for stage in case.plan.layout.stages):
        raise CannotRunError(
            "tile-batchnorm: every rank has whole images here; take scheme sp, or local_DP 2"
        )


def _prepare_engine(engine: Engine) -> None:
    """Calibrate and quantise the engine for inference in int8."""
    if engine.plan.precision.int8:
        engine.arithmetic.quantise(engine.calibrate())


def _time_steps(
    context: Context, case: ModelCase, images: ImageSource
) -> tuple[array[float], float]:
    """Time the steps, and report their metrics.

    Returns:
        This rank's times in ms, and the bytes that the ranks of a replica used together.
    """
    params = context.read_params(ModelParams)
    plan = case.plan
    peak = PeakMemory(plan.device)
    engine = Engine(context.world.comm, plan, images, case.training)
    trained_before = _load_or_report(context, engine)
    _prepare_engine(engine)

    steps = Steps(engine, images, trained_before, params.warmup)
    epoch_steps = count_epoch_steps(context, images, case.images)
    epochs = Epochs(context, engine, case.images, trained_before, epoch_steps)
    step_count = epoch_steps * params.num_epochs

    times_ms = measure(
        context,
        steps.run_step,
        iterations=step_count,
        pauses=epochs.make_pauses(),
        after_batch=epochs.print_line,
    )

    steps.report(context, step_count)
    epochs.finish(times_ms)

    context.metric("peak_memory_mb", peak.megabytes())
    report_memory(context, engine, steps.activations)
    if peak.since_start and context.world.rank == 0:
        context.choice("peak_memory", "of the process", "the system does not reset it")
    in_first_replica = context.world.rank < plan.layout.ranks_per_replica
    used_bytes: float = context.world.comm.allreduce(peak.growth if in_first_replica else 0.0)
    report_figures(context, case, engine, times_ms)

    answers = None
    if case.training is None:
        answers = collect_answers(engine, images, steps.list_answers(step_count))
        _report_latency(context, steps, times_ms)

    images.close()
    if (file := context.read_params(OwnNetworkParams).save_weights) is not None:
        state_dict.save(Path(file), engine)
    engine.free()
    if answers is not None:
        report_accuracy(context, answers)
        _compare_with_fp32(context, plan, answers)
    return times_ms, used_bytes


def _report_latency(context: Context, steps: Steps, times_ms: array[float]) -> None:
    """Report the latency of a closed load as timed, or serve an open load."""
    params = context.read_params(ModelParams)
    if params.arrival == "closed":
        report_latency(context, [context.largest(ms) for ms in times_ms])
        return
    seed = context.seed_for("arrivals")
    arrivals = draw_arrivals(len(times_ms), require_value(params.arrival_rate), seed)
    report_open_latency(context, serve(context, steps.run_step, arrivals))


def _compare_with_fp32(context: Context, plan: ModelPlan, answers: InferredAnswers) -> None:
    """Compare the answers with those of the same weights in fp32 on the same layout."""
    if plan.precision is FP32:
        _report_reference(context, "none", "fp32 is what other formats are held against")
        return
    release_memory()
    try:
        set_fp32_precision(plan.device)
    except CannotRunError as error:
        _report_reference(context, "none", str(error))
        return
    fp32_plan = replace(plan, precision=FP32)
    images = _open_images(context, fp32_plan)
    engine = Engine(context.world.comm, fp32_plan, images)
    _load_checkpoint(context, engine)
    reference = repeat_inference(context, engine, images, answers)
    images.close()
    engine.free()
    set_fp32_precision(plan.device, tf32=plan.precision.tf32)
    report_agreement(context, answers, reference)
    reason = f"the same weights, layout and images of the last {len(reference.steps)} steps"
    _report_reference(context, "fp32", reason)


def _report_reference(context: Context, reference: str, reason: str) -> None:
    if context.world.rank == 0:
        context.choice("agreement_with", reference, reason)


def _open_images(context: Context, plan: ModelPlan) -> ImageSource:
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


def _load_or_report(context: Context, engine: Engine) -> int:
    """Load the checkpoint, if any, and report it; return the steps trained before."""
    trained_before = _load_checkpoint(context, engine)
    path = context.read_params(ModelParams).checkpoint
    if engine.trainer is None and context.world.rank == 0:
        if path is None:
            context.choice("weights", f"random, of seed {context.seed}", "no checkpoint was given")
        else:
            context.choice("weights", f"of {path}", f"a checkpoint after {trained_before} steps")
    return trained_before


def _load_checkpoint(context: Context, engine: Engine) -> int:
    """Load the checkpoint, if any; return its number of steps, or 0."""
    path = context.read_params(ModelParams).checkpoint
    learns = engine.trainer is not None
    if path is not None and (not learns or context.world.comm.bcast(Path(path).exists())):
        return checkpoint.load(Path(path), engine, weights_only=not learns)
    return 0
