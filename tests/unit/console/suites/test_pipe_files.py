"""Files that the user names: pipes end a command instead of blocking it."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from spbench.errors import FailedRunError, UsageError
from spbench.launch.hosts.hosts import read_hostfile
from spbench.planner.cluster.cluster_file import load_cluster
from spbench.planner.errors import PlannerError
from spbench.planner.profile.files import load_profile
from spbench.record.runs.files import write_file
from spbench.suites.loader import read_suite_file
from spbench.suites.pipe_files import read_first_bytes

pytestmark = pytest.mark.slow

SUITE = "schema: spbench.suite/1\nname: piped\ncases:\n  - {name: a, benchmark: memory.copy}\n"


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


READERS = [
    (read_suite_file, UsageError),
    (read_hostfile, UsageError),
    (load_cluster, PlannerError),
    (load_profile, PlannerError),
]


@pytest.mark.timeout(20)
def test_pipe_without_writer_is_an_error(pipe, messages):
    with ThreadPoolExecutor() as pool:
        reads = [pool.submit(read, pipe) for read, _ in READERS]
    for read, (_, error) in zip(reads, READERS, strict=True):
        with messages.raises(error):
            read.result()


@pytest.mark.timeout(20)
def test_pipe_without_reader_is_an_error(pipe, messages):
    with messages.raises(FailedRunError):
        write_file(pipe, "text")


@pytest.mark.timeout(20)
def test_writes_a_report_to_a_pipe(pipe):
    contents = []
    reader = threading.Thread(target=lambda: contents.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "text" * 100_000)
    reader.join()
    assert contents == ["text" * 100_000]


@pytest.mark.timeout(20)
def test_waits_for_a_slow_writer(pipe):
    """Once the pipe has a writer, the limit for one no longer applies."""

    def write():
        with pipe.open("w") as file:
            time.sleep(0.4)
            file.write(SUITE[:10])
            file.flush()
            time.sleep(0.4)
            file.write(SUITE[10:])

    writer = threading.Thread(target=write)
    writer.start()
    assert read_first_bytes(pipe, 1 << 20, pipe_seconds=0.2) == SUITE.encode()
    writer.join()


@pytest.mark.timeout(20)
def test_reads_no_more_than_the_given_size(pipe, tmp_path):
    (tmp_path / "file").write_text("x" * 100)
    assert read_first_bytes(tmp_path / "file", 10) == b"x" * 10
    writer = threading.Thread(target=lambda: pipe.write_text("x" * 100))
    writer.start()
    assert read_first_bytes(pipe, 10) == b"x" * 10
    writer.join()


@pytest.mark.parametrize(
    "arguments",
    [
        "validate <(sleep 2.5; cat suite.yaml)",
        "validate /dev/stdin < suite.yaml",
        "validate /dev/stdin < <(cat suite.yaml)",
    ],
)
@pytest.mark.timeout(60)
def test_reads_process_substitution_and_standard_input(tmp_path, arguments):
    (tmp_path / "suite.yaml").write_text(SUITE)
    command = f"{sys.executable} -m spbench {arguments}"
    completed = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "1 case, no errors" in completed.stdout
