"""Programs of Debian as cases, by their presets.

Their figures are those of the machine: only that they are there, and above 0, is looked at.
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


def program(*names):
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed: apt-get install hpcc fio iperf3")
    return names[0]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def passed(ended):
    assert ended.code == 0, ended.stdout + ended.stderr
    (case,) = ended.report["cases"]
    found = {name: one["value"] for name, one in case["metrics"].items()}
    assert len(found) > 1
    return found


@pytest.mark.long
@pytest.mark.slow
def test_fio_reads_and_writes_a_file_and_checks_it(tmp_path):
    program("fio")
    smaller = [word.replace("--size=64m", "--size=2m") for word in PRESETS["fio"].argv]
    fio = {"preset": "fio", "argv": smaller, "cwd": str(tmp_path)}
    found = passed(run(write_suite({"fio": fio}, tmp_path), home=tmp_path / "home"))
    assert found["read_mb_s"] > 0
    assert found["write_p99_us"] > 0


def client_and_server(port, *words):
    """Rank 0 is the client, whose output counts, and starts once rank 1's server listens."""
    where = ["--port", port]
    client = [*PRESETS["iperf3"].argv, *where, "--time", "1", *words]
    server = [*PRESETS["iperf3_server"].argv, *where, "--bind", "127.0.0.1"]
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
    program("iperf3")
    suite = write_suite({"iperf3": client_and_server(free_port(), *udp)}, tmp_path)
    found = passed(run(suite, home=tmp_path / "home"))
    assert found["received_gbit_s"] > 0
    assert ("jitter_ms" in found) == bool(udp)
    assert ("retransmits" in found) == (not udp)


def test_iperf3_without_a_server_is_told(tmp_path):
    program("iperf3")
    client = {"preset": "iperf3", "argv": [*PRESETS["iperf3"].argv, "--port", free_port()]}
    ended = run(write_suite({"iperf3": client}, tmp_path), home=tmp_path / "home")
    assert ended.code == 1, ended.stdout + ended.stderr
    assert "unable to connect to server" in ended.case("iperf3")["reason"]


@pytest.mark.slow
def test_hpcc_on_two_ranks_passes_its_checks(tmp_path):
    program("hpcc")
    (tmp_path / "hpccinf.txt").write_text(HPCC_INPUT)
    hpcc = {"preset": "hpcc", "cwd": str(tmp_path)}
    found = passed(run(write_suite({"hpcc": hpcc}, tmp_path), home=tmp_path / "home"))
    wanted = parse_expectation(PRESETS["hpcc"].expects).metrics
    assert set(found) - {"time_ms", "skew"} == set(wanted)
    output = (tmp_path / str(PRESETS["hpcc"].reads)).read_text()
    assert "CommWorldProcs=2" in output
    section = output.partition("Begin of HPL section.")[2].partition("End of HPL section.")[0]
    linpack = OutputReader(parse_expectation(PRESETS["hpl"].expects))
    for line in section.splitlines():
        linpack.read_line(line)
    read = linpack.finish()
    assert not read.missing
    assert [dict(point.labels)["n"] for point in read.points] == [200, 200]
