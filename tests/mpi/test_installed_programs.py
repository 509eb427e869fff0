"""Programs of Debian, started as they are, and their output read by the presets.

Here they are started by the tests themselves; their figures are those of the machine, and only
that they are there, and above 0, is looked at.
"""

import os
import shutil
import socket
import subprocess

import pytest

from spbench_core.programs.expectation import expectation_of
from spbench_core.programs.output import OutputReader
from spbench_core.programs.presets import PRESETS

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MOST_S = 90
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


def read(preset, output):
    reader = OutputReader(expectation_of(PRESETS[preset].expects))
    for line in output.splitlines():
        reader.line(line)
    return reader.end()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def run(*argv, cwd=None, env=None):
    return subprocess.run(
        argv, cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, timeout=MOST_S
    )


def assert_right(found):
    assert not found.missing
    assert not found.forbidden
    assert found.values


@pytest.mark.slow
def test_fio_reads_and_writes_a_file_and_checks_it(tmp_path):
    program("fio")
    smaller = [word.replace("--size=64m", "--size=2m") for word in PRESETS["fio"].argv]
    ended = run(*smaller, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = read("fio", ended.stdout)
    assert_right(found)
    assert all(value > 0 for value in found.values.values())


@pytest.mark.slow
@pytest.mark.parametrize("udp", [[], ["--udp", "--bitrate", "100M"]], ids=["tcp", "udp"])
def test_iperf3_measures_the_loopback(udp):
    program("iperf3")
    port = free_port()
    where = ["--port", port]
    server = subprocess.Popen(
        [*PRESETS["iperf3_server"].argv, *where, "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        begun = []
        for line in server.stdout:
            begun.append(line)
            if line.startswith("Server listening"):
                break
        client = run(*PRESETS["iperf3"].argv, *where, "--time", "1", *udp)
        heard = "".join(begun) + server.communicate(timeout=MOST_S)[0]
    finally:
        server.kill()
        server.wait()
    found = read("iperf3", client.stdout)
    assert_right(found)
    assert found.values["received_gbit_s"] > 0
    assert ("jitter_ms" in found.values) == bool(udp)
    assert ("retransmits" in found.values) == (not udp)
    assert_right(read("iperf3_server", heard))


def test_iperf3_without_a_server_is_told():
    program("iperf3")
    client = run(*PRESETS["iperf3"].argv, "--port", free_port())
    found = read("iperf3", client.stdout)
    assert "unable to connect to server" in found.forbidden[0]


@pytest.mark.mpi
@pytest.mark.slow
def test_hpcc_on_two_ranks_passes_its_checks(tmp_path):
    program("hpcc", "mpirun.openmpi")
    (tmp_path / "hpccinf.txt").write_text(HPCC_INPUT)
    ended = run("mpirun.openmpi", "--oversubscribe", "-np", "2", "hpcc", cwd=tmp_path, env=AS_ROOT)
    assert ended.returncode == 0, ended.stderr
    output = (tmp_path / str(PRESETS["hpcc"].reads)).read_text()
    found = read("hpcc", output)
    assert_right(found)
    assert set(found.values) == set(expectation_of(PRESETS["hpcc"].expects).figures)
    section = output.partition("Begin of HPL section.")[2].partition("End of HPL section.")[0]
    linpack = read("hpl", section)
    assert_right(linpack)
    assert [dict(point.labels)["n"] for point in linpack.points] == [200, 200]
