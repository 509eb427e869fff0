"""MPI4DL's scripts of the halo exchange, with their flags and defaults."""

from __future__ import annotations

from spbench_workers.reference_scripts import Script, ScriptFlag, sets, switch

_FOLDER = "benchmarks/communication/halo"
_ALWAYS = "every run compares tensors, outputs and gradients"
_COMMON = (
    sets("--image-size", 8),
    sets("--batch-size", 1),
    sets("--in-channels", 1),
    sets("--halo-len", 1),
    sets("--num-spatial-parts", 4),
    sets("--slice-method", "square"),
    sets("--warmup", 10),
    sets("--iterations", 100),
)
_CONV = (*_COMMON, sets("--out-channels", 256), switch("--fp16-allreduce"))
_COMPARISONS = tuple(
    ScriptFlag(flag, help=_ALWAYS, word="true", silent=True)
    for flag in ("--enable-val-recv-tensors", "--enable-val-conv", "--enable-val-small-conv")
)
_KERNELS = (
    switch("--enable-one-h-dim-kernel"),
    switch("--enable-one-w-dim-kernel"),
    ScriptFlag("--CPU", param="device", word="cpu", help="data on the host"),
    ScriptFlag(
        "--enable-deterministic",
        word="true",
        help="the order of sums is that of torch's convolution, and checks allow for it",
    ),
)

SCRIPTS = (
    Script(
        "halo_exchange",
        f"{_FOLDER}/benchmark_sp_halo_exchange.py",
        "halo.exchange",
        (
            *_COMMON,
            ScriptFlag("--out-channels", 256, help="nothing is computed"),
            ScriptFlag("--fp16-allreduce", word="true", help="nothing is summed"),
        ),
    ),
    Script(
        "halo_conv",
        f"{_FOLDER}/benchmark_sp_halo_exchange_conv.py",
        "halo.compute",
        (*_CONV, *_COMPARISONS, *_KERNELS),
    ),
    Script(
        "halo_compute",
        f"{_FOLDER}/benchmark_sp_halo_exchange_with_compute.py",
        "halo.compute",
        _CONV,
    ),
    Script(
        "halo_validate",
        f"{_FOLDER}/benchmark_sp_halo_exchange_with_compute_val.py",
        "halo.compute",
        (*_CONV, *_COMPARISONS, *_KERNELS),
    ),
)
