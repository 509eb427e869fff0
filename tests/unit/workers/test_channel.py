import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from spbench_core.events import rank_events
from spbench_core.events.fields import EventError
from spbench_workers.channel.base import LOST_STATUS, ConsoleUnreachableError, encode_event
from spbench_workers.channel.connect import connect_to_console
from spbench_workers.channel.file import FileChannel
from spbench_workers.channel.opening import make_hello_fields, open_channel, read_launcher_rank
from spbench_workers.channel.tcp import TcpChannel

PATIENCE = 5.0


class TinyConsole:
    """The console's end of one connection."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(PATIENCE)
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.environ = {rank_events.ENV_COLLECTOR: self.address, rank_events.ENV_TOKEN: "t0ken"}
        self.connection = None
        self.hello = None
        self._lines = None

    def accept(self):
        self.connection, _ = self._server.accept()
        self.connection.settimeout(PATIENCE)
        self._lines = self.connection.makefile("rb")

    def welcome(self):
        """Accept a connection, answer its hello, and return the hello."""
        self.accept()
        hello = self.event()
        self.reply(reply="hello")
        return hello

    def connect(self):
        """Return the other end of an accepted connection."""
        connection = socket.create_connection(self._server.getsockname())
        self.accept()
        return connection

    def open_channel(self, environ):
        """Return an accepted channel and its hello."""
        with ThreadPoolExecutor() as pool:
            hello = pool.submit(self.welcome)
            return open_channel(environ), hello.result(PATIENCE)

    def line(self):
        return self._lines.readline()

    def event(self, *kinds):
        """Return the next event, or the next one of the given kinds."""
        while True:
            event = rank_events.decode(self.line())
            if not kinds or event["event"] in kinds:
                return event

    def reply(self, **fields):
        self.connection.sendall(json.dumps(fields).encode() + b"\n")

    def disconnect(self):
        for part in (self._lines, self.connection):
            if part is not None:
                part.close()

    def close(self):
        self.disconnect()
        self._server.close()


@pytest.fixture
def console():
    console = TinyConsole()
    yield console
    console.close()


@pytest.fixture
def channel(console, monkeypatch):
    """Yield a channel that does not end the test process when it is lost."""
    monkeypatch.setattr(TcpChannel, "_lost", lambda self: None)
    channel, console.hello = console.open_channel(console.environ | {"OMPI_COMM_WORLD_RANK": "3"})
    yield channel
    end_channel(console, channel)


def end_channel(console, channel):
    with suppress(OSError):
        console.connection.shutdown(socket.SHUT_RDWR)
    channel._thread.join(PATIENCE)
    channel._socket.close()


@pytest.fixture
def lively_channel(console, monkeypatch):
    """Yield a channel like `channel`, with a heartbeat each 0.1 s."""
    monkeypatch.setattr(TcpChannel, "_lost", lambda self: None)
    connection = console.connect()
    channel = TcpChannel(connection, b"", 3, first_seq=1, heartbeat_seconds=0.1)
    channel.start()
    yield channel
    end_channel(console, channel)


# Over TCP


def test_the_first_line_is_a_hello_with_the_token(console, channel):
    hello = console.hello
    assert (hello["event"], hello["seq"], hello["rank"]) == ("hello", 0, 3)
    assert (hello["token"], hello["schema"]) == ("t0ken", rank_events.SCHEMA)
    assert (hello["host"], hello["pid"]) == (socket.gethostname(), os.getpid())


def test_numbers_events_without_a_gap(console, channel):
    channel.send("log", level="info", message="one")
    channel.send("log", level="info", message="two")
    assert [console.event("log")["seq"] for _ in range(2)] == [1, 2]


def test_an_event_that_cannot_be_sent_leaves_no_gap(console, channel):
    with pytest.raises(EventError):
        channel.send("metric", case="a", repeat=0, name="rate", value=float("nan"))
    channel.send("log", level="info", message="next")
    assert console.event("log")["seq"] == 1


def test_receives_the_cases_from_the_console(console, channel):
    cases = [{"id": "a", "text": "x" * 200_000}]
    console.reply(reply="cases", cases=cases)
    assert channel.receive_cases() == cases


def test_rejects_an_unexpected_reply(console, channel, messages):
    console.reply(reply="bye")
    with messages.raises(EventError):
        channel.receive_cases()


def test_bye_waits_for_its_answer(console, lively_channel):
    with ThreadPoolExecutor() as pool:
        closing = pool.submit(lively_channel.close)
        assert console.event("bye")["rank"] == 3
        time.sleep(0.05)
        assert not closing.done()
        console.reply(reply="bye")
        closing.result(PATIENCE)
    assert console.line() == b""


def test_reports_the_position_of_its_main_thread(console, channel):
    console.reply(reply="where")
    event = console.event("log")
    assert event["level"] == "where"
    assert event["message"].startswith("in ")
    assert ".py:" in event["message"]


@pytest.mark.slow
def test_sends_short_heartbeats_at_each_interval(console, lively_channel):
    start = time.monotonic()
    lines = [console.line() for _ in range(4)]
    seconds = time.monotonic() - start
    assert {rank_events.decode(line)["event"] for line in lines} == {"heartbeat"}
    assert max(map(len, lines)) <= 100
    assert seconds > 0.25


def test_replies_do_not_cause_heartbeats(console, lively_channel):
    start = time.monotonic()
    for _ in range(20):
        console.reply(reply="where")
    kinds = [console.event()["event"] for _ in range(21)]
    assert kinds.count("heartbeat") <= (time.monotonic() - start) / 0.1 + 1


RANK_THAT_SLEEPS = """
import os, sys, time
from spbench_workers.channel.opening import open_channel
open_channel(os.environ)
time.sleep(60)
"""


@pytest.mark.parametrize("failure", ["closed", "reset"])
def test_a_sleeping_rank_ends_if_its_console_is_gone(console, failure, messages):
    command = [sys.executable, "-c", RANK_THAT_SLEEPS]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as rank:
        console.welcome()
        if failure == "reset":
            linger = struct.pack("ii", 1, 0)
            console.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        console.close()
        _, stderr = rank.communicate(timeout=5.0)
    assert rank.returncode == LOST_STATUS == 75
    messages.check(stderr)


RANK_WITHOUT_STDERR = """
import os, sys, threading, time
from spbench_workers.channel.opening import open_channel
open_channel(os.environ)
failure = sys.argv[1]
if failure == "closed":
    os.close(2)
if failure in ("full", "locked"):
    os.set_blocking(2, False)
    try:
        while True:
            os.write(2, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(2, True)
if failure == "locked":
    # The lock of sys.stderr belongs to a thread that is stuck in a write.
    threading.Thread(target=sys.stderr.write, args=("x" * 100_000,), daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["no reader", "closed", "full", "locked"])
def test_a_rank_ends_with_its_console_if_stderr_is_blocked(console, failure):
    command = [sys.executable, "-c", RANK_WITHOUT_STDERR, failure]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe) as rank:
        try:
            console.welcome()
            assert rank.stdout.readline() == b"ready\n"
            if failure == "no reader":
                rank.stderr.close()
            console.close()
            assert rank.wait(timeout=5.0) == LOST_STATUS
        finally:
            rank.kill()


RANK_WITH_A_FAILING_HEARTBEAT = """
import os, sys, time
from spbench_workers.channel.opening import open_channel
channel = open_channel(os.environ)
def fail():
    raise ValueError("no load")
setattr(channel, sys.argv[1], fail)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["host_load", "_beat"])
def test_a_rank_ends_if_its_heartbeat_fails(console, part, messages):
    command = [sys.executable, "-c", RANK_WITH_A_FAILING_HEARTBEAT, part]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as rank:
        console.welcome()
        _, stderr = rank.communicate(timeout=5.0)
    assert rank.returncode == LOST_STATUS
    messages.check(stderr)


RANK_THAT_HOLDS_THE_GIL = """
import ctypes, os
from spbench_workers.channel.opening import open_channel
channel = open_channel(os.environ)
with channel.guarded_by_kernel():
    os.write(1, b"ready")
    ctypes.PyDLL(None).sleep(60)
"""


@pytest.mark.parametrize("moment", ["before", "during"])
def test_the_kernel_ends_a_rank_that_holds_the_gil(console, moment):
    command = [sys.executable, "-c", RANK_THAT_HOLDS_THE_GIL]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as rank:
        try:
            console.welcome()
            if moment == "during":
                assert rank.stdout.read(5) == b"ready"
                time.sleep(0.1)
            console.close()
            assert rank.wait(timeout=5.0) in (-signal.SIGIO, LOST_STATUS)
            assert moment == "before" or rank.returncode == -signal.SIGIO
        finally:
            rank.kill()


def test_a_guarded_rank_survives_a_short_wait(console):
    program = RANK_THAT_HOLDS_THE_GIL.replace("sleep(60)", "usleep(50_000)")
    command = [sys.executable, "-c", f"{program}\nchannel.receive_cases()\nchannel.close()"]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as rank:
        try:
            console.welcome()
            assert rank.stdout.read(5) == b"ready"
            time.sleep(0.2)
            console.reply(reply="cases", cases=[])
            assert console.event("bye")
            console.reply(reply="bye")
            assert rank.wait(timeout=5.0) == 0
        finally:
            rank.kill()


RANK_WITH_A_PROGRAM = """
import os, sys, time
from spbench_workers.channel.opening import open_channel
from spbench_workers.benchmarks.program.child import ChildProgram, ProgramCommand
channel = open_channel(os.environ)
command = ProgramCommand(["sh", "-c", "sleep 60 & echo $!; wait"], None, dict(os.environ))
child = ChildProgram(command, lambda line: None, lambda: None)
channel.kill_children = child.kill
child.run()
time.sleep(60)
"""


def test_a_program_and_its_children_end_with_the_console(console):
    command = [sys.executable, "-c", RANK_WITH_A_PROGRAM]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as rank:
        console.welcome()
        grandchild = int(rank.stdout.readline())
        console.close()
        assert rank.wait(timeout=5.0) == LOST_STATUS
    assert has_ended(grandchild)


def has_ended(pid):
    """Return whether a process ends within `PATIENCE`; a zombie counts as ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


RANK_THAT_CLOSES = """
import os
from spbench_workers.channel.opening import open_channel
open_channel(os.environ).close()
"""


@pytest.mark.parametrize(("reply", "status"), [(b"", LOST_STATUS), (b'{"reply":"bye"}\n', 0)])
def test_a_rank_succeeds_only_if_its_bye_is_answered(console, reply, status):
    command = [sys.executable, "-c", RANK_THAT_CLOSES]
    environ = {**os.environ, **console.environ, "PMI_RANK": "2"}
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as rank:
        try:
            console.welcome()
            assert console.event("bye")
            console.connection.sendall(reply)
            console.close()
            assert rank.wait(timeout=5.0) == status
        finally:
            rank.kill()


# No console


@pytest.fixture
def unused_address():
    """Return the environment for an address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    return {rank_events.ENV_COLLECTOR: address}


def test_a_missing_console_is_an_error_with_its_address(unused_address):
    with pytest.raises(ConsoleUnreachableError, match=unused_address[rank_events.ENV_COLLECTOR]):
        open_channel(unused_address, connect_seconds=0.2)


def test_a_missing_address_is_an_error_with_the_variable(messages):
    with messages.raises(ConsoleUnreachableError):
        open_channel({})


def test_tries_the_next_address(unused_address, console, monkeypatch):
    monkeypatch.setattr(TcpChannel, "_lost", lambda self: None)
    addresses = f"{unused_address[rank_events.ENV_COLLECTOR]},{console.address}"
    channel, hello = console.open_channel(console.environ | {rank_events.ENV_COLLECTOR: addresses})
    assert hello["event"] == "hello"
    end_channel(console, channel)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"reply":"bye"}\n'])
def test_tries_again_after_a_rejection(console, monkeypatch, answer):
    monkeypatch.setattr(TcpChannel, "_lost", lambda self: None)
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(open_channel, console.environ)
        for _ in range(2):
            console.accept()
            assert console.event("hello")["seq"] == 0
            console.connection.sendall(answer)
            console.disconnect()
        console.welcome()
        channel = opening.result(PATIENCE)
    channel.send("log", level="info", message="in")
    assert console.event("log")["seq"] == 1
    end_channel(console, channel)


def test_keeps_a_reply_that_arrives_with_the_welcome(console, monkeypatch):
    monkeypatch.setattr(TcpChannel, "_lost", lambda self: None)
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(open_channel, console.environ)
        console.accept()
        console.connection.sendall(b'{"reply":"hello"}\n{"reply":"cases","cases":[{"id":"a"}]}\n')
        channel = opening.result(PATIENCE)
    assert channel.receive_cases() == [{"id": "a"}]
    end_channel(console, channel)


def test_an_address_that_drops_packets_leaves_time_for_the_next(console, monkeypatch):
    """The first of two addresses never answers; the console is at the second."""
    connect = socket.create_connection
    timeouts = []

    def create_connection(address, timeout):
        if address[0] == "192.0.2.1":
            timeouts.append(timeout)
            time.sleep(timeout)
            raise TimeoutError
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    rank, fields = make_hello_fields(console.environ)
    hello = encode_event("hello", rank, 0, fields)
    with ThreadPoolExecutor() as pool:
        welcome = pool.submit(console.welcome)
        accepted = connect_to_console(["192.0.2.1:9", console.address], hello, timeout_seconds=0.4)
        assert welcome.result(PATIENCE)["event"] == "hello"
    assert timeouts == [0.2]
    accepted.connection.close()


def test_writes_events_to_a_file_without_a_console(unused_address, tmp_path):
    environ = unused_address | {rank_events.ENV_EVENTS_DIR: str(tmp_path / "events")}
    channel = open_channel(environ, connect_seconds=0.2)
    channel.rank = 5
    channel.send("case_start", case="a", repeat=0)
    channel.close()
    [path] = (tmp_path / "events").iterdir()
    events = [rank_events.decode(line) for line in path.read_bytes().splitlines()]
    assert [event["event"] for event in events] == ["hello", "case_start", "bye"]
    assert [event["seq"] for event in events] == [0, 1, 2]
    assert path.name.startswith(f"{socket.gethostname()}-{os.getpid()}-")


def test_events_of_many_threads_are_complete(tmp_path):
    channel = FileChannel(tmp_path)
    channel.rank = 0

    def beat():
        for _ in range(50):
            channel.send("heartbeat")

    threads = [threading.Thread(target=beat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    channel.close()
    [path] = tmp_path.iterdir()
    seqs = [rank_events.decode(line)["seq"] for line in path.read_bytes().splitlines()]
    assert seqs == list(range(201))


def test_a_batch_job_loads_its_cases_from_a_file(tmp_path, monkeypatch):
    cases = [{"id": "a"}]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    monkeypatch.setenv(rank_events.ENV_CASES, str(tmp_path / "cases.json"))
    channel = FileChannel(tmp_path)
    assert channel.receive_cases() == cases
    channel.close()


def test_ranks_with_equal_host_and_pid_have_separate_files(tmp_path):
    for channel in (FileChannel(tmp_path), FileChannel(tmp_path)):
        channel.close()
    assert len(list(tmp_path.iterdir())) == 2


OVERDUE = """
import os, sys, time
from spbench_workers.channel.opening import open_channel
channel = open_channel(os.environ)
channel.rank = 3
channel.send("case_start", case=sys.argv[1], repeat=0)
time.sleep(float(sys.argv[2]))
channel.send("case_end", case=sys.argv[1], repeat=0, status="ok")
channel.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "seconds", "status"), [("short", "30", LOST_STATUS), ("long", "1.5", 0)]
)
def test_a_batch_rank_ends_itself_after_the_timeout_of_a_case(tmp_path, case, seconds, status):
    cases = [{"id": "short", "timeout": 0.5}, {"id": "long", "timeout": 60.0}]
    contents = json.dumps([{**entry, "start_timeout": 60.0} for entry in cases])
    (tmp_path / "cases.json").write_text(contents)
    cases_variable = {rank_events.ENV_CASES: str(tmp_path / "cases.json")}
    env = os.environ | cases_variable | {rank_events.ENV_EVENTS_DIR: str(tmp_path / "events")}
    command = [sys.executable, "-c", OVERDUE, case, seconds]
    completed = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, check=False)
    assert completed.returncode == status, completed.stderr
    [path] = (tmp_path / "events").iterdir()
    events = [rank_events.decode(line) for line in path.read_bytes().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert case == "long" or "heartbeat" in [event["event"] for event in events]
    positions = [event["message"] for event in events if event.get("level") == "where"]
    assert bool(positions) == (case == "short")
    assert events[-1]["event"] == ("bye" if case == "long" else "log")


BATCH_RANK_THAT_HOLDS_THE_GIL = """
import ctypes, os
from pathlib import Path
from spbench_workers.channel.file import FileChannel
channel = FileChannel(Path(os.environ["FOLDER"]), {None: 0.5})
channel.start()
with channel.guarded_by_kernel():
    ctypes.PyDLL(None).sleep(60)
"""


@pytest.mark.slow
def test_the_kernel_ends_a_batch_rank_that_does_not_start_in_time(tmp_path):
    command = [sys.executable, "-c", BATCH_RANK_THAT_HOLDS_THE_GIL]
    env = os.environ | {"FOLDER": str(tmp_path / "events")}
    completed = subprocess.run(command, env=env, check=False, timeout=10.0)
    assert completed.returncode == -signal.SIGALRM


BATCH_RANK_ON_A_FULL_DISK = """
import os, time
from pathlib import Path
from spbench_workers.channel.file import FileChannel
channel = FileChannel(Path(os.environ["FOLDER"]))
full = os.open("/dev/full", os.O_WRONLY)
os.dup2(full, channel._file.fileno())
os.dup2(full, 2)
channel.start()
time.sleep(60)
"""


@pytest.mark.slow
def test_a_batch_rank_ends_if_it_cannot_write(tmp_path):
    command = [sys.executable, "-c", BATCH_RANK_ON_A_FULL_DISK]
    env = os.environ | {"FOLDER": str(tmp_path / "events")}
    completed = subprocess.run(command, env=env, check=False, timeout=10.0)
    assert completed.returncode == LOST_STATUS


def test_missing_batch_cases_are_an_error_with_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv(rank_events.ENV_CASES, raising=False)
    channel = FileChannel(tmp_path)
    with pytest.raises(ConsoleUnreachableError, match=rank_events.ENV_CASES):
        channel.receive_cases()
    channel.close()


# Ranks and sizes from the launcher


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"MVP_COMM_WORLD_RANK": "3", "MVP_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8)),
        ({"PMI_RANK": "3"}, (3, None)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        ({"PMI_ID": "3", "MPIRUN_NPROCS": "8"}, (3, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_SIZE": "8"}, (None, None)),
        ({}, (None, None)),
    ],
    ids=[
        "MVAPICH2",
        "MVAPICH 3",
        "Open MPI",
        "PMI",
        "PMI without size",
        "Slurm",
        "mpirun_rsh",
        "PMI inside Slurm",
        "size without rank",
        "no launcher",
    ],
)
def test_reads_rank_and_size_of_the_launcher(environ, expected):
    assert read_launcher_rank(environ) == expected


def test_a_heartbeat_has_only_loads_with_values(tmp_path):
    channel = FileChannel(tmp_path)
    channel._beat()
    channel.host_load = lambda: {"cpu": 0.5}
    channel.gpu_load = list
    channel._beat()
    channel.gpu_load = lambda: [{"index": 0}]
    channel._beat()
    channel.rank = 0
    channel.close()
    (path,) = tmp_path.glob("*.jsonl")
    events = [rank_events.decode(line) for line in path.read_bytes().splitlines()]
    loads = [(event.get("load"), event.get("gpus")) for event in events[:-1]]
    assert loads == [(None, None), ({"cpu": 0.5}, None), ({"cpu": 0.5}, [{"index": 0}])]
