"""Checks of assumptions of the GPU code about torch, CUDA and NCCL, one by one.

    mpirun -n 1 python -m mpi4py -m benchmarks.gpu_once.probe [--late]
    mpirun -n 2 python -m mpi4py -m benchmarks.gpu_once.probe [--late]

One rank checks number formats, memory and NCCL. Two ranks on one GPU check exchanges between
processes. Each check prints a line; the exit code is 1 if one failed. With ``--late`` the device is
a stand-in that does its work late, and checks of CUDA are skipped.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median

from spbench_workers.comm import open_world

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
WORLD = open_world()  # before torch: it sets the number of threads

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from mpi4py import MPI  # noqa: E402
from torch.nn import functional  # noqa: E402

from spbench_parallel.device.driver import load_driver  # noqa: E402
from spbench_parallel.device.failures import describe_gpu_error  # noqa: E402
from spbench_parallel.device.formats import autotune_convolutions, set_fp32_precision  # noqa: E402
from spbench_parallel.device.gpus import read_pci_address  # noqa: E402
from spbench_parallel.device.host_memory import get_staging_buffers  # noqa: E402
from spbench_parallel.device.streams import synchronize_stream  # noqa: E402
from spbench_parallel.p2p import torch_group  # noqa: E402
from spbench_parallel.spatial.transports import Transport, TransportSpec  # noqa: E402
from spbench_parallel.spatial.transports.choose import TRANSPORTS  # noqa: E402
from spbench_parallel.spatial.transports.cuda_ipc import CudaIpcTransport  # noqa: E402

LATE = "--late" in sys.argv
if LATE:
    from standins.late_device import install
    from standins.late_ipc import install_ipc

    install()
    install_ipc()  # type: ignore[no-untyped-call]
DEVICE = torch.device("late" if LATE else "cuda", 0)
COMM = WORLD.comm
CYCLES_PER_MS = 1_900_000
ROUNDS = 60
LIVE_TRANSPORTS = 20 if LATE else 1100
"""More than the 1,000 events between processes that torch makes in one process."""
EXCHANGED_SHAPE = (2, 3, 5, 257)

Check = Callable[[], object]


def delay(milliseconds: float) -> None:
    """Let the current stream of a GPU wait, so that later work is late."""
    if not LATE:
        torch.cuda._sleep(int(milliseconds * CYCLES_PER_MS))  # type: ignore[no-untyped-call]


def check_facts() -> object:
    """Return torch's and the driver's description of the GPU."""
    properties = torch.cuda.get_device_properties(0)
    driver = load_driver()
    return {
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "capability": torch.cuda.get_device_capability(0),
        "memory_mib": properties.total_memory >> 20,
        "address": read_pci_address(DEVICE),
        "gpus_of_driver": driver.count_gpus() if driver is not None else None,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "nccl": torch.cuda.nccl.version(),  # type: ignore[no-untyped-call]
        "stream_priorities": torch.cuda.Stream.priority_range(),  # type: ignore[call-arg]
    }


def check_tf32() -> object:
    """Check that fp32 is multiplied as fp32 without TF32; return relative errors."""
    generator = torch.Generator("cpu").manual_seed(1)
    left, right = torch.rand(2, 512, 512, generator=generator)
    image = torch.rand(2, 64, 64, 64, generator=generator)
    kernel = torch.rand(64, 64, 3, 3, generator=generator)
    expected = left.double() @ right.double()
    expected_map = torch.conv2d(image.double(), kernel.double())
    errors = {}
    for tf32 in (False, True):
        set_fp32_precision(DEVICE, tf32=tf32)
        product = left.to(DEVICE) @ right.to(DEVICE)
        with autotune_convolutions(tf32=tf32):
            convolved = torch.conv2d(image.to(DEVICE), kernel.to(DEVICE))
        errors[f"tf32 {tf32}"] = (
            _relative_error(product, expected),
            _relative_error(convolved, expected_map),
        )
    set_fp32_precision(DEVICE, tf32=False)
    assert errors["tf32 False"][0] < 1e-5, errors
    assert errors["tf32 False"][1] < 1e-4, errors
    return errors


def _relative_error(values: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((values.cpu().double() - expected).abs() / expected.abs()).max())


def check_norm_sums() -> object:
    """Check the sums of a batch norm's gradient, and return their errors.

    The errors are by format and layout. Terms may be rounded to the format of the pixels: on an
    H200 torch 2.11 does so in fp16.
    """
    errors: dict[str, str] = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for layout in (torch.contiguous_format, torch.channels_last):
            pixels = torch.randn(2, 8, 33, 17).to(dtype)
            gradient = torch.randn(2, 8, 33, 17).to(dtype)
            wide = pixels.double()
            mean = wide.mean((0, 2, 3))
            scale = (wide.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt()
            on_device = [
                tensor.to(DEVICE).contiguous(memory_format=layout) for tensor in (gradient, pixels)
            ]
            device_mean = mean.float().to(DEVICE)
            device_scale = scale.float().to(DEVICE)
            ones = torch.ones_like(device_mean)
            _, weight_sum, bias_sum = torch.ops.aten.native_batch_norm_backward(
                *on_device,
                ones,
                None,
                None,
                device_mean,
                device_scale,
                True,
                0.0,
                [False, True, True],
            )
            centred = (wide - mean[:, None, None]) * scale[:, None, None]
            terms = gradient.double() * centred, gradient.double()
            assert weight_sum.dtype == torch.float32, (dtype, layout, weight_sum.dtype)
            largest_errors = []
            for total, total_terms in zip((weight_sum, bias_sum), terms, strict=True):
                error = (total.cpu().double() - total_terms.sum((0, 2, 3))).abs()
                # Four times the random error of rounding each term, and that of the sum in fp32.
                bound = 4 * torch.finfo(dtype).eps * total_terms.square().sum((0, 2, 3)).sqrt()
                bound += torch.finfo(torch.float32).eps * total_terms.abs().sum((0, 2, 3))
                assert bool((error < bound).all()), (dtype, layout, error, bound)
                largest_errors.append(f"{float(error.max()):.2g}")
            errors[f"{dtype} {layout}"] = " and ".join(largest_errors)
            functional.batch_norm(
                on_device[1], device_mean, ones, ones, torch.zeros_like(ones), eps=1e-5
            )
    return errors


def check_pinned_buffers() -> object:
    """Check copies through pinned buffers that are reused behind late work."""
    memory = get_staging_buffers(DEVICE)
    wrong = 0
    for number in range(200):
        if number % 10 == 0:
            delay(0.2)
        values = torch.full((3000 + number,), float(number), device=DEVICE)
        fetched = memory.download(values)
        wrong += int((fetched != number).sum())
        memory.copy_to_gpu(torch.full_like(fetched, number + 0.5), values)
        wrong += int((memory.download(values) != number + 0.5).sum())
    assert not wrong, f"{wrong} wrong values"
    return "200 rounds"


def check_nccl_to_itself() -> object:
    """Check an NCCL message to the same rank, and a sum over one rank."""
    group = torch_group.acquire(MPI.COMM_SELF, DEVICE)
    outgoing = torch.arange(1000.0, device=DEVICE)
    received = torch.zeros_like(outgoing)
    messages = [(tensor.view(torch.uint8), 0) for tensor in (received, outgoing)]
    for work in group.exchange(messages[:1], messages[1:], 7):
        work.wait()
    synchronize_stream(DEVICE)
    assert torch.equal(outgoing, received), "the message differs"
    group.allreduce(outgoing, dist.ReduceOp.SUM).wait()
    synchronize_stream(DEVICE)
    coalesces = group.backend.supports_coalescing
    torch_group.release(MPI.COMM_SELF, DEVICE)
    return f"coalesces: {coalesces}"


def check_out_of_memory() -> object:
    """Return the message for an allocation that exceeds any GPU's memory."""
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device=DEVICE)
    except RuntimeError as error:
        message = describe_gpu_error(error, {"image_size": 1})
    else:
        raise AssertionError("16 TiB were allocated")
    assert message is not None, "no message is known for it"
    assert "memory" in message, message
    return message


def open_transport(kind: str, view: torch.Tensor, tag: int) -> Transport:
    """Return a transport that exchanges a view of four dimensions by two ranks."""
    peer = 1 - COMM.rank
    images, channels, rows, cols = view.shape
    spec = TransportSpec(
        comm=COMM,
        tag=tag,
        outgoing=[view],
        targets=[peer],
        shapes=[(images, channels, rows, cols)],
        sources=[peer],
        into=None,
        dtype=view.dtype,
        device=DEVICE,
    )
    return TRANSPORTS[kind](spec)


def check_exchanges(kind: str) -> object:
    """Check exchanges with late work before and NaN after; return the median time.

    A missing wait causes a wrong value.
    """
    view = torch.zeros(EXCHANGED_SHAPE, device=DEVICE)
    transport = open_transport(kind, view, 77)
    wrong = 0
    times = []
    for number in range(ROUNDS):
        if (number + COMM.rank) % 3 == 0:
            delay(1.0)
        view.fill_(float(number * 10 + COMM.rank))
        started = time.perf_counter()
        transport.start()
        other_work = torch.full((1 << 16,), float("nan"), device=DEVICE)
        transport.wait()
        received = transport.received[0].clone()
        transport.unpack()
        transport.release()
        view.fill_(float("nan"))
        del other_work
        wrong += int((received != number * 10 + 1 - COMM.rank).sum())
        times.append(time.perf_counter() - started)
    transport.free()
    assert not wrong, f"{wrong} wrong values"
    return f"{ROUNDS} rounds, median {median(times) * 1e6:.0f} us"


def check_many_transports() -> object:
    """Open more transports than a process has events, like long sessions of models."""
    free_before = 0 if LATE else torch.cuda.mem_get_info()[0]
    transports: list[CudaIpcTransport] = []
    for tag in range(LIVE_TRANSPORTS):
        view = torch.full((1, 1, 1, 64), float(tag), device=DEVICE)
        transport = open_transport("cuda-ipc", view, 100 + tag)
        assert isinstance(transport, CudaIpcTransport)
        transports.append(transport)
    while transports:
        transports.pop().free()
    free_after = 0 if LATE else torch.cuda.mem_get_info()[0]
    return f"{LIVE_TRANSPORTS} at once; {(free_before - free_after) >> 20} MiB are not free again"


CUDA_CHECKS: dict[str, Check] = {
    "facts": check_facts,
    "tf32": check_tf32,
    "nccl to itself": check_nccl_to_itself,
    "out of memory": check_out_of_memory,
}
"""Checks that need CUDA, and are skipped with the stand-in."""
SINGLE_RANK_CHECKS: dict[str, Check] = {
    "norm sums": check_norm_sums,
    "pinned buffers": check_pinned_buffers,
}
PAIR_CHECKS: dict[str, Check] = {
    "exchanges cuda-ipc": lambda: check_exchanges("cuda-ipc"),
    "exchanges cuda": lambda: check_exchanges("cuda"),
    "many transports": check_many_transports,
}


def run_check(name: str, check: Check) -> bool:
    """Run a check on all ranks and print its line; return whether all passed."""
    started = time.perf_counter()
    problem = ""
    result: object = None
    try:
        result = check()
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        problem = f"{type(error).__name__} in line {line}: {str(error)[:300]}"
    problems = COMM.allgather(problem)
    seconds = time.perf_counter() - started
    failures = [f"rank {rank}: {text}" for rank, text in enumerate(problems) if text]
    if COMM.rank == 0:
        verdict = "FAILED" if failures else "ok"
        text = "; ".join(failures) or result
        print(f"{name}: {verdict} after {seconds:.2f} s: {text}", flush=True)
    return not failures


def main() -> int:
    """Run the checks for this number of ranks and return the exit code."""
    if not LATE:
        torch.cuda.set_device(DEVICE)
    if COMM.size == 2:
        checks = PAIR_CHECKS
    elif LATE:
        checks = SINGLE_RANK_CHECKS
    else:
        checks = CUDA_CHECKS | SINGLE_RANK_CHECKS
    if COMM.rank == 0 and LATE and COMM.size == 1:
        print(f"skipped, as they need CUDA: {', '.join(CUDA_CHECKS)}", flush=True)
    passed = [run_check(name, check) for name, check in checks.items()]
    return 0 if all(passed) else 1


sys.exit(main())
