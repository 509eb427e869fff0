"""MPI4DL's scripts of the halo exchange, with their flags and defaults."""

from __future__ import annotations

from spbench_workers.reference_scripts import Script, ScriptFlag, switch_flag, value_flag

_FOLDER = "benchmarks/communication/halo"
_ALWAYS = "every run compares tensors, outputs and gradients"
_COMMON = (
    value_flag("--image-size", 8),
    value_flag("--batch-size", 1),
    value_flag("--in-channels", 1),
    value_flag("--halo-len", 1),
    value_flag("--num-spatial-parts", 4),
    value_flag("--slice-method", "square"),
    value_flag("--warmup", 10),
    value_flag("--iterations", 100),
)
_CONV = (*_COMMON, value_flag("--out-channels", 256), switch_flag("--fp16-allreduce"))
_COMPARISONS = tuple(
    ScriptFlag(flag, help=_ALWAYS, switch_value="true", silent=True)
    for flag in ("--enable-val-recv-tensors", "--enable-val-conv", "--enable-val-small-conv")
)
_KERNELS = (
    switch_flag("--enable-one-h-dim-kernel"),
    switch_flag("--enable-one-w-dim-kernel"),
    ScriptFlag("--CPU", param="device", switch_value="cpu", help="data on the host"),
    ScriptFlag(
        "--enable-deterministic",
        switch_value="true",
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
            ScriptFlag("--fp16-allreduce", switch_value="true", help="nothing is summed"),
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
