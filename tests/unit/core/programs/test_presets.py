"""Presets, tested with the captured outputs of their programs."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.programs.expectation import parse_expectation
from spbench_core.programs.output import LineSplitter, OutputReader
from spbench_core.programs.presets import PRESETS

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "tests/data/programs"
CAPTURED = sorted(str(path.relative_to(DATA)) for path in DATA.rglob("*.txt"))
PASSED = [name for name in CAPTURED if not Path(name).name.startswith("failed")]
FAILED = [name for name in CAPTURED if name not in PASSED]
EXPECTED = json.loads((DATA / "expected.json").read_text())
SOURCE_LINES = [
    line for line in (DATA / "SOURCES.md").read_text().splitlines() if line.startswith("| `")
]
SOURCE_NAMES = [line.split("`")[1] for line in SOURCE_LINES]

MEANINGS = {
    "us": ("us", "lower"),
    "ms": ("ms", "lower"),
    "mb": ("MB", "none"),
    "gups": ("GUP/s", "higher"),
    "gflops": ("GFLOP/s", "higher"),
    "gb_s": ("GB/s", "higher"),
    "mb_s": ("MB/s", "higher"),
    "gbit_s": ("Gbit/s", "higher"),
    "per_s": ("1/s", "higher"),
    "iops": ("1/s", "higher"),
    "percent": ("%", "lower"),
    "retransmits": ("1", "lower"),
    "error": ("1", "lower"),
    "time_s": ("s", "lower"),
    "exchange_s": ("s", "lower"),
}
NOISE = [
    "[vm:06754] mca: base: close: component cm closed",
    "[vm:06754] 3 more processes have sent help message help-mca-var.txt / deprecated",
    "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.",
    "srun: job 12 queued and waiting for resources",
    "./osu_bw: /usr/lib/libnl-3.so.200: no version information available",
    "--------------------------------------------------------------------------",
    "Warning: 3",
    "# Another program's table",
    "# Time(us)   Share",
    "",
]


def read_output(name, output, size=1 << 20):
    reader = OutputReader(parse_expectation(PRESETS[name.split("/")[0]].expects))
    lines = LineSplitter()
    pieces = [output[start : start + size] for start in range(0, len(output), size)]
    for line in (line for piece in pieces for line in lines.feed(piece)):
        reader.read_line(line)
    for line in lines.flush():
        reader.read_line(line)
    return reader.finish()


def read_captured(name):
    return (DATA / name).read_bytes()


def format_point(point):
    return [point.metric, dict(point.labels), pytest.approx(point.value)]


def test_presets_list_the_captured_versions():
    for name, preset in PRESETS.items():
        folders = {path.split("/")[1] for path in PASSED if path.startswith(f"{name}/")}
        assert set(preset.versions) == folders, name
        assert list(preset.versions) == sorted(preset.versions), name
    assert {path.split("/")[0] for path in CAPTURED} == set(PRESETS)


def test_each_captured_output_has_a_source():
    assert sorted(SOURCE_NAMES) == CAPTURED


@pytest.mark.parametrize("name", PASSED)
def test_reads_all_numbers_of_a_captured_output(name):
    output = read_output(name, read_captured(name))
    expected = EXPECTED[name]
    assert output.values == pytest.approx(expected["values"])
    assert len(output.points) == expected["points"]
    assert output.samples == expected.get("samples", {})
    assert [format_point(point) for point in output.points[:1] + output.points[-1:]] == expected[
        "ends"
    ]
    assert not output.missing
    assert not output.forbidden


def test_units_and_directions_match_metric_names():
    for preset in PRESETS.values():
        for figure in parse_expectation(preset.expects).metrics.values():
            meaning = next(
                (
                    unit_and_direction
                    for suffix, unit_and_direction in MEANINGS.items()
                    if figure.name.endswith(suffix)
                ),
                None,
            )
            assert (figure.unit, figure.better) == meaning, (preset.name, figure.name)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PASSED), st.data())
def test_chunks_and_foreign_lines_do_not_change_the_result(name, data):
    output = read_captured(name)
    lines = output.decode().splitlines()
    positions = st.integers(0, len(lines))
    for position in sorted(data.draw(st.lists(positions, max_size=12)), reverse=True):
        lines.insert(position, data.draw(st.sampled_from(NOISE)))
    size = data.draw(st.integers(1, 4000))
    disturbed = read_output(name, "\n".join([*lines, ""]).encode(), size)
    assert disturbed == read_output(name, output)


@pytest.mark.parametrize("name", FAILED)
def test_reports_a_failed_run(name):
    output = read_output(name, read_captured(name))
    assert output.forbidden


@pytest.mark.parametrize(
    ("name", "original", "replacement", "expected"),
    [
        ("osu_latency/7.4/validated.txt", "Pass", "Fail", "validation is Fail, not Pass: "),
        ("osu_latency/6.1/two_hosts.txt", "28.75", "28.75[vm:1]", "a row that cannot be read"),
        ("osu_bw/7.5.1/validated.txt", "Pass", "Fail", "validation is Fail"),
        ("osu_mbw_mr/7.4/validated.txt", "Pass", "Fail", "validation is Fail"),
        ("osu_allreduce/7.4/full_validated.txt", "Pass", "Fail", "validation is Fail"),
        ("osu_barrier/7.4/full.txt", "9280.33", "nan", "a row that cannot be read"),
        (
            "all_reduce_perf/2.17.1/two_hosts.txt",
            "17.72    0.00    0.00      0\n",
            "1 0 0 3\n",
            "in_place_wrong is 3, not 0 or N/A",
        ),
        ("all_reduce_perf/2.17.1/two_hosts.txt", "0 OK", "3 FAILED", "3 FAILED"),
        (
            "alltoall_perf/unnamed/one_gpu.txt",
            "0.00      0 ",
            "0.00    N/A ",
            "wrong is N/A, not 0",
        ),
        ("imb/2021.11/multi.txt", "MPI_Finalize", "MPI", "All processes entering MPI_Finalize"),
        ("hpcc/1.5.0/two_ranks.txt", "PASSED", "FAILED", "FAILED"),
        ("hpcc/1.5.0/two_ranks.txt", "Success=1", "Success=0", "^Success=1$"),
        ("hpcc/1.5.0/two_ranks.txt", "(passed)", "(failed)", "locations (failed)"),
        ("hpcc/1.5.0/two_ranks.txt", "HPL_Tflops=", "HPL_Tflops=-", "a value of hpl_gflops"),
        ("hpl/2.3/four_cores.txt", "PASSED", "FAILED", "...... FAILED"),
        (
            "hpl/2.3/four_cores.txt",
            "0 tests completed and failed",
            "1 tests completed and failed",
            "1 tests completed and failed",
        ),
        (
            "stream/5.10/one_thread.txt",
            "Solution Validates",
            "Failed Validation on array a[]",
            "Failed Validation",
        ),
        (
            "iperf3/3.12/tcp.txt",
            '"end":',
            '"error": "broken pipe", "last":',
            "a value of sent_gbit_s",
        ),
        ("iperf3_server/3.12/tcp.txt", "receiver", "sender", "a value of received_gbit_s"),
        ("fio/3.33/verified.txt", '"error" : 0', '"error" : 84', '"error" : 84'),
        ("measure_py/0b2b0d6/inception_sgd.txt", "0.000000", "0.250000", "error 0.250000"),
        ("measure_py/0b2b0d6/inception_sgd.txt", "error 0.000000", "error -1", "error -1"),
        ("mpi4dl_halo/0.6/two_tiles.txt", "passed", "failed", "Validation failed for rank"),
    ],
)
def test_reports_an_error_in_a_captured_output(name, original, replacement, expected):
    output = read_captured(name).decode()
    assert original in output
    changed = read_output(name, output.replace(original, replacement).encode())
    assert any(expected in message for message in [*changed.missing, *changed.forbidden])


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PASSED
        if not name.startswith(("osu_", "iperf3_server", "measure_py", "mpi4dl"))
    ],
)
def test_reports_a_truncated_output(name):
    output = read_captured(name)
    assert read_output(name, output[: len(output) // 2]).missing


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_reports_an_empty_output(name):
    assert read_output(name, b"").missing


@pytest.mark.parametrize(
    ("error", "small"),
    [
        ("0", True),
        ("0.0", True),
        ("7.4e-08", True),
        ("0.000033", True),
        ("3e-4", False),
        ("1e-05", True),
        ("2.0", False),
        ("0.01", False),
        ("nan", False),
    ],
)
def test_reports_large_errors_of_measure_py(error, small):
    line = f"INFO:root:iter 1, 0.08 sec, 1.9 GB/sec per gpu, error {error}\n"
    assert (not read_output("measure_py", line.encode()).forbidden) == small


def test_the_presets_page_lists_all_presets():
    page = (ROOT / "docs/presets.md").read_text().partition("## Reading")[0]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [format_row(preset) for preset in PRESETS.values()]


def format_row(preset):
    figures = parse_expectation(preset.expects).metrics.values()
    metrics = ", ".join(f"`{figure.name}`" for figure in figures)
    run_versions = sorted(
        {
            name.split("/")[1]
            for name, line in zip(SOURCE_NAMES, SOURCE_LINES, strict=True)
            if name.startswith(f"{preset.name}/") and "run here" in line
        }
    )
    program = f"`{preset.argv[0]}`: {preset.summary}"
    run_text = ", ".join(run_versions) or "no"
    return (
        f"| `{preset.name}` | {program} | {', '.join(preset.versions)} | {metrics} | {run_text} |"
    )
