"""Operators over tiles on real ranks, compared with torch on the whole image.

One launch of six ranks serves all tests. A case uses some of them, in any order.
"""

import json
import math
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support.paths import PROGRAMS
from support.runs import find_program

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

RANKS = 6
START_S = 60
CASE_S = 60
GRIDS = [(rows, cols) for rows in range(1, 7) for cols in range(1, 7) if rows * cols <= RANKS]
TRANSPORTS = ["packed", "datatype", "shm"]
DTYPES = ["fp64", "fp32", "fp16", "bf16"]


class RanksDiedError(BaseException):
    """Error: the ranks have ended.

    It is not an `Exception`, so that hypothesis does not shrink the case.
    """


class Server:
    """The ranks, which run one case after the other."""

    def __init__(self, folder):
        mpirun = find_program("mpirun")
        if mpirun is None:
            pytest.skip("no mpirun")
        self.errors = folder / "stderr"
        with socket.create_server(("127.0.0.1", 0)) as listener, self.errors.open("wb") as errors:
            port = listener.getsockname()[1]
            program = [
                sys.executable,
                "-m",
                "mpi4py",
                str(PROGRAMS / "serve_spatial.py"),
                str(port),
            ]
            self.process = subprocess.Popen(
                [mpirun, "--oversubscribe", "-n", str(RANKS), *program],
                env=os.environ
                | {
                    "OMPI_ALLOW_RUN_AS_ROOT": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_osc": "^ucx",
                    "OMPI_MCA_mpi_yield_when_idle": "1",
                    "OMP_NUM_THREADS": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
            listener.settimeout(START_S)
            try:
                self.connection, _ = listener.accept()
            except TimeoutError:
                self.wait_or_kill(0)
                pytest.fail(f"no ranks within {START_S} s: {self.errors.read_text()}")
        self.connection.settimeout(CASE_S)
        self.lines = self.connection.makefile("rw")
        self.alive = True

    def ask(self, case):
        """Return the result of each rank."""
        if not self.alive:
            raise RanksDiedError("an earlier case has ended the ranks")
        line = ""
        try:
            self.lines.write(json.dumps(case) + "\n")
            self.lines.flush()
            line = self.lines.readline()
        except OSError as error:
            line = f"{error}"
        if not line.startswith("["):
            self.alive = False
            raise RanksDiedError(f"{line!r} after {case}\n{self.errors.read_text()}")
        return json.loads(line)

    def close(self):
        self.lines.close()
        self.connection.close()
        self.wait_or_kill(20 if self.alive else 0)
        assert self.process.returncode == 0 or not self.alive, self.errors.read_text()

    def wait_or_kill(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("ranks"))
    yield server
    server.close()


def limit_examples(count):
    """Return settings with the same cases in every run, for reproducible failures.

    The cases follow from name and body of a test: a change of either gives other cases.
    """
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def make_case(operator, height, width, grid=(1, 1), **fields):
    size = grid[0] * grid[1]
    case = {
        "operator": operator,
        "height": height,
        "width": width,
        "grid": grid,
        "ranks": list(range(size)),
        "owners": list(range(size)),
        "batch": 1,
        "channels": 2,
        "dtype": "fp64",
        "layout": "plain",
        "transport": "packed",
        "overlap": True,
        "input_gradient": True,
        "gradient": "random",
        "data": "real",
        "rounds": 1,
        "seed": 0,
        "change": None,
        "arguments": {},
    }
    return case | fields


@st.composite
def images(draw, operator, arguments, min_size=(1, 1), dtypes=DTYPES, **fields):
    """Draw a case on any tiles of any ranks; some ranks may have no tile or no pixel."""
    size = draw(st.sampled_from([4, 6, 2, 3, 5, 1]))
    idle = draw(st.sampled_from([0, 0, 0, 1])) if size > 1 else 0
    grid = draw(st.sampled_from([grid for grid in GRIDS if grid[0] * grid[1] == size - idle]))
    mixed = draw(st.booleans())
    ranks = draw(st.permutations(range(RANKS)))[:size] if mixed else range(size)
    owners = draw(st.permutations(range(size))) if mixed or idle else range(size)
    shortest, longest = draw(st.sampled_from([(1, 4), (5, 12), (13, 24), (13, 24)]))
    dtype = draw(st.sampled_from(dtypes))
    is_auto = draw(st.integers(0, 30)) == 30
    transport = "auto" if is_auto else draw(st.sampled_from(TRANSPORTS))
    height, width = (max(side, draw(st.integers(shortest, longest))) for side in min_size)
    return (
        make_case(
            operator,
            height,
            width,
            grid,
            ranks=list(ranks),
            owners=list(owners)[: size - idle],
            batch=draw(st.integers(1, 3)),
            dtype=dtype,
            layout=draw(st.sampled_from(["plain", "channels_last", "view"])),
            transport=transport,
            overlap=draw(st.sampled_from([True, False, None])),
            gradient=draw(st.sampled_from(["random", "random", "random", "ones"])),
            data=draw(st.sampled_from(["whole", "real"])),
            rounds=draw(st.sampled_from([2, 3, 1])),
            seed=draw(st.integers(0, 1 << 20)),
            arguments=arguments,
        )
        | fields
    )


def pairs(elements):
    return st.tuples(elements, elements)


def compute_least_sides(kernel, padding, dilation=(1, 1)):
    """Return the smallest image on which the window fits."""
    spans = (d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    return tuple(max(1, span - 2 * p) for span, p in zip(spans, padding, strict=True))


@st.composite
def convolutions(draw):
    kernel = draw(pairs(st.integers(1, 5)))
    dilation = draw(pairs(st.sampled_from([1, 1, 2, 3])))
    padding = draw(pairs(st.integers(0, 4)))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    arguments = {
        "out_channels": groups * draw(st.integers(1, 2)),
        "kernel_size": kernel,
        "stride": draw(pairs(st.sampled_from([1, 1, 2, 3, 4]))),
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    case = draw(images("conv", arguments, compute_least_sides(kernel, padding, dilation)))
    channels = groups * draw(st.integers(1, 2))
    input_gradient = draw(st.integers(0, 5)) > 0
    return case | {"channels": channels, "input_gradient": input_gradient}


@st.composite
def poolings(draw, operator):
    kernel = draw(pairs(st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, side // 2)) for side in kernel)
    stride = draw(st.none() | pairs(st.integers(1, 4)))
    arguments = {"kernel_size": kernel, "stride": stride, "padding": padding}
    min_size = compute_least_sides(kernel, padding)
    if operator == "max_pool":
        arguments["dilation"] = draw(pairs(st.sampled_from([1, 1, 2])))
        min_size = compute_least_sides(kernel, padding, arguments["dilation"])
    else:
        arguments["count_include_pad"] = draw(st.booleans())
    case = draw(images(operator, arguments, min_size))
    assume(sees_pixels(case))
    return case


def sees_pixels(case):
    """Return whether each window has a pixel: a maximum of no pixels is rejected."""
    arguments = case["arguments"]
    stride = arguments["stride"] or arguments["kernel_size"]
    dilation = arguments.get("dilation", (1, 1))
    axes = zip(arguments["kernel_size"], stride, arguments["padding"], dilation, strict=True)
    for (k, s, p, d), length in zip(axes, (case["height"], case["width"]), strict=True):
        firsts = range(-p, length + p - d * (k - 1), s)
        if not all(any(0 <= first + d * tap < length for tap in range(k)) for first in firsts):
            return False
    return True


@st.composite
def norms(draw):
    arguments = {
        "training": draw(st.sampled_from([True, True, False])),
        "affine": draw(st.booleans()),
        "momentum": draw(st.sampled_from([0.1, 0.5, None])),
        "track_running_stats": draw(st.booleans()),
        "eps": 0.1,
    }
    return draw(images("batch_norm", arguments, min_size=(1, 2)))


@st.composite
def redistributions(draw):
    case = draw(images("redistribute", {}))
    size = len(case["ranks"])
    grid = draw(st.sampled_from([grid for grid in GRIDS if grid[0] * grid[1] <= size]))
    owners = draw(st.permutations(range(size)))[: grid[0] * grid[1]]
    return case | {"arguments": {"grid": grid, "owners": owners}}


@st.composite
def chains(draw):
    """Draw a chain of layers that fit on any image of the least size."""
    dtype = draw(st.sampled_from(["fp64", "fp64", "fp32"]))
    layers = []
    windows = 0
    min_size = [1, 1]
    kinds = ["conv", "conv", "relu", "max_pool"]
    kinds += ["batch_norm", "avg_pool", "tanh"] if dtype == "fp64" else []
    for kind in [*draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)), "conv"]:
        options: dict[str, Any] = {}
        if kind == "batch_norm":
            options = {"training": True, "eps": 0.1}
        elif kind in ("conv", "max_pool", "avg_pool"):
            kernel = draw(pairs(st.integers(1, 3)))
            options = {"kernel_size": kernel, "stride": draw(pairs(st.sampled_from([1, 1, 2])))}
            options["padding"] = tuple(
                draw(st.integers(0, 2 if kind == "conv" else side // 2)) for side in kernel
            )
            if kind == "conv":
                options |= {"out_channels": 2, "bias": draw(st.booleans())}
            if kind == "avg_pool":
                options["count_include_pad"] = draw(st.booleans())
            windows += 1
        layers.append((kind, options))
    for _, options in reversed(layers):
        if "kernel_size" in options:
            sides = zip(
                min_size, *(options[k] for k in ("kernel_size", "stride", "padding")), strict=True
            )
            min_size = [max(1, (side - 1) * s + k - 2 * p) for side, k, s, p in sides]
    arguments = {"layers": layers, "fused_layers": draw(st.integers(1, windows))}
    # At least two values per channel, for the statistics.
    batch = draw(st.integers(2, 3))
    data = "real" if dtype == "fp64" else "whole"
    return draw(images("fused", arguments, min_size, [dtype], batch=batch, data=data))


def check(results):
    """Check that the errors of all tensors on all ranks are at most those of rounding."""
    for rank, result in enumerate(results):
        assert "exception" not in result, f"rank {rank}: {result['exception']}"
        assert "output" in result
        for name, tensor in result.items():
            assert tensor["error"] <= tensor["allowed"], f"rank {rank}: {name}: {tensor}"


@limit_examples(100)
@given(case=convolutions())
def test_convolution_equals_that_of_the_whole_image(server, case):
    check(server.ask(case))


@pytest.mark.long
@limit_examples(300)
@given(case=convolutions())
def test_many_convolutions_equal_those_of_the_whole_image(server, case):
    check(server.ask(case))


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("transport", [*TRANSPORTS, "auto"])
def test_sent_tile_is_freed(server, transport, overlap):
    arguments = {"out_channels": 2, "kernel_size": (3, 3), "padding": (1, 1)}
    case = make_case("kept", 24, 24, (2, 2), arguments=arguments)
    results = server.ask(case | {"transport": transport, "overlap": overlap})
    assert results == [{"kept": False}] * 4


@limit_examples(60)
@given(case=poolings("max_pool"))
def test_max_pooling_equals_that_of_the_whole_image(server, case):
    check(server.ask(case))


@limit_examples(60)
@given(case=poolings("avg_pool"))
def test_average_pooling_equals_that_of_the_whole_image(server, case):
    check(server.ask(case))


@limit_examples(60)
@given(case=norms())
def test_batch_norm_equals_that_of_the_whole_image(server, case):
    check(server.ask(case))


@limit_examples(30)
@given(case=images("global_pool", {}))
def test_the_global_mean_is_that_of_the_whole_image(server, case):
    check(server.ask(case))


@limit_examples(60)
@given(case=redistributions())
def test_redistribution_changes_no_value(server, case):
    check(server.ask(case))


@limit_examples(80)
@given(case=chains())
def test_fused_layers_equal_those_of_the_whole_image(server, case):
    check(server.ask(case))


WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "k3": ("conv", {"kernel_size": 3, "padding": 1}),
    "k3-s2": ("conv", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "k7": ("conv", {"kernel_size": 7, "padding": 3}),
    "k5-d2": ("conv", {"kernel_size": 5, "dilation": 2}),
    "max": ("max_pool", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "avg": ("avg_pool", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    "chain": (
        "fused",
        {
            "layers": [
                ("conv", {"out_channels": 4, "kernel_size": 3, "padding": 1}),
                ("batch_norm", {"training": True}),
                ("relu", {}),
                ("conv", {"out_channels": 4, "kernel_size": 3, "stride": 2, "padding": 1}),
                ("relu", {}),
                ("conv", {"out_channels": 2, "kernel_size": 3, "padding": 1}),
            ],
            "fused_layers": 3,
        },
    ),
}


@pytest.mark.parametrize("image", ["65x65", "62x62", "37x53"])
@pytest.mark.parametrize("grid", [(2, 3), (5, 1)], ids=["2x3", "5x1"])
@pytest.mark.parametrize("window", WINDOWS)
def test_uneven_tiles_equal_the_reference(server, image, grid, window):
    operator, arguments = WINDOWS[window]
    if operator == "conv":
        arguments = {"out_channels": 4, **arguments}
    height, width = map(int, image.split("x"))
    case = make_case(operator, height, width, grid, channels=3, batch=2, transport="auto")
    check(server.ask(case | {"arguments": arguments}))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("owners", [[2, 0, 1], [1, 2]], ids=str)
def test_convolution_works_on_any_ranks_in_any_order(server, transport, owners):
    arguments = {"out_channels": 2, "kernel_size": 3, "padding": 1}
    case = make_case("conv", 9, 13, (1, len(owners)), owners=owners, ranks=[1, 3, 5])
    check(server.ask(case | {"transport": transport, "arguments": arguments, "rounds": 3}))


def test_weight_gradients_can_travel_in_16_bits(server):
    arguments = {"out_channels": 2, "kernel_size": 3, "gradient_dtype": "fp16"}
    case = make_case("conv", 9, 13, (2, 3), dtype="fp32", data="whole", arguments=arguments)
    results = server.ask(case)
    check(results)
    assert all(result["weight"]["allowed"] == 0.0 for result in results)


@pytest.mark.parametrize("operator", ["conv", "max_pool", "avg_pool"])
def test_rejects_a_kernel_larger_than_the_padded_image(server, operator):
    arguments = {"kernel_size": 7, "padding": 1} | (
        {"out_channels": 1} if operator == "conv" else {}
    )
    if operator == "avg_pool":
        arguments["count_include_pad"] = True
    results = server.ask(make_case(operator, 4, 9, (2, 2), arguments=arguments))
    assert len(results) == 4
    for result in results:
        assert "ValueError: a kernel that spans 7 pixels is larger than 4" in result["exception"]


def test_rejects_a_maximum_of_no_pixels(server):
    arguments = {"kernel_size": 2, "padding": 1, "dilation": 2}
    results = server.ask(make_case("max_pool", 1, 1, (1, 2), arguments=arguments))
    assert len(results) == 2
    for result in results:
        assert "ValueError: output 0 of the maximum pool has no pixel" in result["exception"]


@st.composite
def gathers(draw):
    """Draw boxes of an image for each rank, which may overlap and exceed the border."""
    case = draw(images("adjoint", {}, dtypes=["fp64"]))

    def interval(length):
        first = draw(st.integers(-3, length + 2))
        return first, draw(st.integers(first + 1, length + 3))

    case["parts"] = [
        [
            (interval(case["height"]), interval(case["width"]))
            for _ in range(draw(st.integers(0, 3)))
        ]
        for _ in case["ranks"]
    ]
    return case


@limit_examples(80)
@given(case=gathers())
def test_gather_and_its_adjoint_give_the_same_product(server, case):
    answers = server.ask(case)
    for rank, answer in enumerate(answers):
        assert answer.get("same"), f"rank {rank}: {answer}"
        assert answer["forward"] == answer["backward"] == answers[0]["forward"]


def run_with_changed_value(server, direction, factor, **fields):
    """Return the results of a case in which one received value is multiplied."""
    arguments = {"out_channels": 2, "kernel_size": 3, "padding": 1}
    case = make_case("conv", 12, 12, (2, 2), arguments=arguments, **fields)
    check(server.ask(case))
    results = server.ask(case | {"change": {"direction": direction, "factor": factor}})
    with pytest.raises(AssertionError, match=r"rank \d: "):
        check(results)
    return results


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "numbers", ["fp64 real", "fp32 real", "fp32 whole", "fp16 whole", "bf16 whole"]
)
@pytest.mark.parametrize(
    ("direction", "tensors"), [("forward", {"output", "weight"}), ("backward", {"input"})]
)
def test_detects_a_received_value_with_the_wrong_sign(
    server, transport, numbers, direction, tensors
):
    dtype, data = numbers.split()
    # Several rounds, because some whole numbers are zero, and have no sign.
    fields = {"transport": transport, "dtype": dtype, "data": data, "rounds": 8}
    results = run_with_changed_value(server, direction, -1, **fields)
    wrong_tensors = {
        name
        for result in results
        for name, tensor in result.items()
        if tensor["error"] > 100 * tensor["allowed"]
    }
    assert wrong_tensors == tensors


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_detects_a_received_nan(server, direction):
    results = run_with_changed_value(server, direction, "nan")
    tensor = "output" if direction == "forward" else "input"
    assert any(math.isnan(result[tensor]["error"]) for result in results)
