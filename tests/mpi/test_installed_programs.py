"""Programs of Debian as cases, with their presets.

Their results depend on the machine, so the tests only check that they exist and are above 0.
"""

import shutil
import socket

import pytest

from spbench_core.programs.expectation import parse_expectation
from spbench_core.programs.output import OutputReader
from spbench_core.programs.presets import PRESETS
from support.program_suites import write_suite
from support.runs import run

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

HPCC_INPUT = """\
HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out
8 device out
1 # of problems sizes (N)
200 Ns
1 # of NBs
40 NBs
0 PMAP
1 # of process grids (P x Q)
1 Ps
2 Qs
16.0 threshold
1 # of panel fact
2 PFACTs
1 # of recursive stopping criterium
4 NBMINs
1 # of panels in recursion
2 NDIVs
1 # of recursive panel fact.
1 RFACTs
1 # of broadcast
1 BCASTs
1 # of lookahead depth
1 DEPTHs
2 SWAP
64 swapping threshold
0 L1
0 U
1 Equilibration
8 memory alignment in double
##### This line is ignored
0 Number of additional problem sizes for PTRANS
60 values of N
0 number of additional blocking sizes for PTRANS
40 values of NB
"""


def require_program(name):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: apt-get install hpcc fio iperf3")


def find_free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return str(bound.getsockname()[1])


def read_metrics(result):
    """Check that the case passed, and return its metrics."""
    assert result.code == 0, result.stdout + result.stderr
    (case,) = result.report["cases"]
    metrics = {name: metric["value"] for name, metric in case["metrics"].items()}
    assert len(metrics) > 1
    return metrics


@pytest.mark.long
@pytest.mark.slow
def test_fio_measures_reads_and_writes(tmp_path):
    require_program("fio")
    arguments = [word.replace("--size=64m", "--size=2m") for word in PRESETS["fio"].argv]
    fio = {"preset": "fio", "argv": arguments, "cwd": str(tmp_path)}
    metrics = read_metrics(run(write_suite({"fio": fio}, tmp_path), home=tmp_path / "home"))
    assert metrics["read_mb_s"] > 0
    assert metrics["write_p99_us"] > 0


def make_iperf3_params(port, *arguments):
    """Return parameters for a client on rank 0 that waits for the server on rank 1."""
    port_option = ["--port", port]
    client = [*PRESETS["iperf3"].argv, *port_option, "--time", "1", *arguments]
    server = [*PRESETS["iperf3_server"].argv, *port_option, "--bind", "127.0.0.1"]
    return {
        "preset": "iperf3",
        "per": "rank",
        "by_rank": {"0": client, "1": server},
        "wait_for": {"rank": 0, "of": 1, "line": "^Server listening"},
    }


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("udp", [[], ["--udp", "--bitrate", "100M"]], ids=["tcp", "udp"])
def test_iperf3_measures_the_loopback(udp, tmp_path):
    require_program("iperf3")
    suite = write_suite({"iperf3": make_iperf3_params(find_free_port(), *udp)}, tmp_path)
    metrics = read_metrics(run(suite, home=tmp_path / "home"))
    assert metrics["received_gbit_s"] > 0
    assert ("jitter_ms" in metrics) == bool(udp)
    assert ("retransmits" in metrics) == (not udp)


def test_reports_iperf3_without_a_server(tmp_path):
    require_program("iperf3")
    client = {"preset": "iperf3", "argv": [*PRESETS["iperf3"].argv, "--port", find_free_port()]}
    result = run(write_suite({"iperf3": client}, tmp_path), home=tmp_path / "home")
    assert result.code == 1, result.stdout + result.stderr
    assert "unable to connect to server" in result.case("iperf3")["reason"]


@pytest.mark.slow
def test_hpcc_on_two_ranks_passes_its_checks(tmp_path):
    require_program("hpcc")
    (tmp_path / "hpccinf.txt").write_text(HPCC_INPUT)
    hpcc = {"preset": "hpcc", "cwd": str(tmp_path)}
    metrics = read_metrics(run(write_suite({"hpcc": hpcc}, tmp_path), home=tmp_path / "home"))
    expected_metrics = parse_expectation(PRESETS["hpcc"].expects).metrics
    assert set(metrics) - {"time_ms", "skew"} == set(expected_metrics)
    output = (tmp_path / str(PRESETS["hpcc"].reads)).read_text()
    assert "CommWorldProcs=2" in output
    section = output.partition("Begin of HPL section.")[2].partition("End of HPL section.")[0]
    linpack = OutputReader(parse_expectation(PRESETS["hpl"].expects))
    for line in section.splitlines():
        linpack.read_line(line)
    parsed = linpack.finish()
    assert not parsed.missing
    assert [dict(point.labels)["n"] for point in parsed.points] == [200, 200]
