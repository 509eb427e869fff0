"""The command line of a benchmark that is run without the console."""

import pytest

from spbench_core.catalog import BENCHMARKS
from spbench_workers.standalone import OwnLinesChannel, PrintingChannel, parser_of, read_words


def test_words_become_parameters():
    words = "halo.exchange --image-size 1024 --halo-len 3 --num-spatial-parts 4 --slice-method"
    entry, [params], inject = read_words([*words.split(), "vertical"], 4)
    assert entry.name == "halo.exchange"
    assert (params["image_size"], params["halo_len"], params["grid"]) == (1024, 3, "1x4")
    assert inject is None


def test_faults_are_words_too():
    assert read_words(["memory.copy", "--inject", "corrupt-copy"], 1)[2] == "corrupt-copy"
    assert read_words(["memory.copy", "--inject", "kill"], 1)[2] == "kill"


@pytest.mark.parametrize(
    ("words", "size", "message"),
    [
        ("nonsense", 1, "no benchmark is called 'nonsense'"),
        ("memory.copy --nonsense 3", 1, "unrecognized arguments: --nonsense 3"),
        ("memory.copy --size", 1, "expected one argument"),
        ("memory.copy --size much", 1, "is no number of bytes"),
        ("memory.copy --siz 8", 1, "unrecognized arguments"),
        ("memory.copy --inject corrupt-halo", 1, "invalid choice"),
        ("compute.gemm --n 0 --dtype fp8", 1, "below the least value, 1; .*'fp8' is none of"),
        ("halo.exchange --grid 2x2", 3, "runs on 4 ranks, not on 3"),
        ("link.pingpong", 1, "runs on at least 2 ranks, not on 1"),
    ],
)
def test_wrong_words_raise_one_sentence(words, size, message, capsys):
    with pytest.raises(ValueError, match=message) as caught:
        read_words(words.split(), size)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("entry", BENCHMARKS.values(), ids=lambda entry: entry.name)
def test_every_parameter_is_a_flag_with_help(entry):
    text = parser_of(entry).format_help()
    for param in entry.params:
        assert param.flag in text


def test_lines_are_those_of_the_reference_scripts(capsys):
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


@pytest.mark.parametrize(("error", "said"), [(None, "not a number"), (1.5, "1.5")])
def test_a_failed_check_is_said_and_kept(error, said, capsys):
    channel = PrintingChannel(0)
    channel.send("check", name="halo", passed=False, max_abs_error=error, detail="row 3")
    assert channel.failed
    assert capsys.readouterr().out == (
        f"Validation failed Rank:0 halo: largest error {said}: row 3\n"
    )


def test_a_benchmark_with_lines_of_its_own_prints_only_those_and_what_failed(capsys):
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
    assert capsys.readouterr().out.splitlines() == [
        "# a line of rank 0",
        "Validation failed Rank:0 bound: largest error 2: element 0",
        "Validation failed Rank:1 bound: largest error 2: element 1",
    ]
