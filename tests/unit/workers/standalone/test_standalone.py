"""The command line of a benchmark without the console."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.standalone.command_line import create_parser, list_true_defaults
from spbench_workers.standalone.printing import (
    OwnLinesChannel,
    PrintingChannel,
    open_printing_channel,
)
from spbench_workers.standalone.program import read_command_line


def test_parses_arguments_into_parameters():
    arguments = "halo.exchange --image-size 1024 --halo-len 3 --num-spatial-parts 4 --slice-method"
    line = read_command_line([*arguments.split(), "vertical"], 4)
    [params] = line.cases
    assert line.entry.name == "halo.exchange"
    assert (params["image_size"], params["halo_len"], params["grid"]) == (1024, 3, "1x4")
    assert line.inject is None


def test_parses_faults():
    assert (
        read_command_line(["memory.copy", "--inject", "corrupt-copy"], 1).inject == "corrupt-copy"
    )
    assert read_command_line(["memory.copy", "--inject", "kill"], 1).inject == "kill"
    assert read_command_line(["memory.copy", "--inject", "slow=1.1"], 1).inject == "slow=1.1"


@pytest.mark.parametrize(
    ("arguments", "size", "message"),
    [
        ("nonsense", 1, "no benchmark is called 'nonsense'"),
        ("memory.copy --nonsense 3", 1, "unrecognized arguments: --nonsense 3"),
        ("memory.copy --size", 1, "expected one argument"),
        ("memory.copy --size much", 1, "is no number of bytes"),
        ("memory.copy --siz 8", 1, "unrecognized arguments"),
        ("memory.copy --inject corrupt-halo", 1, "invalid choice"),
        ("memory.copy --inject kill --inject raise", 1, "kill is planted already"),
        ("memory.copy --inject slow=much", 1, "give a number above 1 and at most 1000"),
        ("compute.gemm --n 0 --dtype fp8", 1, "below the least value, 1; .*'fp8' is none of"),
        ("halo.exchange --grid 2x2", 3, "runs on 4 ranks, not on 3"),
        ("link.pingpong", 1, "runs on at least 2 ranks, not on 1"),
    ],
)
def test_rejects_invalid_arguments(arguments, size, message, capsys):
    with pytest.raises(ValueError, match=message) as caught:
        read_command_line(arguments.split(), size)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("entry", BENCHMARKS.values(), ids=lambda entry: entry.name)
def test_every_parameter_has_a_flag(entry):
    text = create_parser(entry).format_help()
    for param in entry.params:
        assert param.flag in text


def test_prints_the_lines_of_the_reference_scripts(capsys):
    channel = PrintingChannel(2)
    channel.send("samples", metric="time_ms", values=[1.0, 2.0])
    channel.send("samples", metric="time_ms", values=[3.0])
    channel.send("check", name="halo", passed=True)
    channel.send("metric", name="bytes_sent", value=12345678)
    channel.send("metric", name="time_ms", value=1 / 3, measured_by="ping-pong")
    channel.send("progress", phase="timing", done=1, total=2)
    channel.close()
    assert capsys.readouterr().out.splitlines() == [
        "Validation passed Rank:2",
        "Rank:2 bytes_sent:12345678",
        "Rank:2 time_ms:0.3333333 (limit, by ping-pong)",
        "Rank:2 Time taken (ms):2.000000",
    ]
    assert not channel.failed


@pytest.mark.parametrize(("error", "expected"), [(None, "not a number"), (1.5, "1.5")])
def test_prints_and_keeps_a_failed_check(error, expected, capsys):
    channel = PrintingChannel(0)
    channel.send("check", name="halo", passed=False, max_abs_error=error, detail="row 3")
    assert channel.failed
    assert capsys.readouterr().out == (
        f"Validation failed Rank:0 halo: largest error {expected}: row 3\n"
    )


def test_a_benchmark_with_custom_lines_prints_no_others(capsys, messages):
    for rank in (0, 1):
        channel = OwnLinesChannel(rank)
        channel.send("samples", metric="time_ms", values=[1.0])
        channel.send("metric", name="count", value=3)
        channel.send("choice", name="model", value="holds", reason="it does")
        channel.send("check", name="exact", passed=True)
        channel.send("log", level="info", message="not a line")
        channel.send("log", level="line", message=f"# a line of rank {rank}")
        channel.send(
            "check", name="bound", passed=False, max_abs_error=2.0, detail=f"element {rank}"
        )
        channel.close()
        assert channel.failed
    messages.check(capsys.readouterr().out.splitlines())


def test_the_help_shows_choices_and_true_defaults():
    entry = BENCHMARKS["halo.exchange"]
    text = " ".join(create_parser(entry, list_true_defaults(entry)).format_help().split())
    assert "else 4 (default: 4)" in text
    assert "; of vertical, horizontal, square (default: square)" in text
    assert "rows and columns of tiles as RxC, instead of slice_method (default: 2x2)" in text
    assert "adjacent in memory (default: off)" in text
    precision = " ".join(create_parser(BENCHMARKS["model.resnet"]).format_help().split())
    assert "; of fp32, fp64, tf32, fp16, bf16, int8, fp_32," in precision
    # A required parameter has no defaults that follow from it.
    assert all(isinstance(list_true_defaults(entry), dict) for entry in BENCHMARKS.values())


def test_a_rank_prints_one_line_if_all_checks_pass(capsys, messages):
    for failing in (False, True):
        channel = open_printing_channel(BENCHMARKS["model.resnet"], 3, None)
        for name in ("output", "loss"):
            passed = not (failing and name == "loss")
            channel.send("check", name=name, passed=passed, max_abs_error=1.0, detail="here")
        channel.close()
    messages.check(capsys.readouterr().out.splitlines())
    unchecked = open_printing_channel(BENCHMARKS["model.resnet"], 3, None)
    unchecked.close()
    stores = open_printing_channel(BENCHMARKS["kvstore.push_pull"], 3, None)
    stores.send("check", name="result", passed=True)
    stores.close()
    assert capsys.readouterr().out == ""
