"""The load of a host that one rank reports with each heartbeat."""

import pytest

from spbench_core.events import rank_events
from spbench_workers.channel.base import encode_event
from spbench_workers.host_load import HostLoad

NET = (
    "Inter-|   Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1\n  eth0: {} 1 0 0 0 0 0 0 {} 1\n"
)
WORST = {"cpu": 0.999, "memory": 0.999, "received": 9.9e12, "sent": 9.9e12}


@pytest.fixture
def write_kernel_files(tmp_path, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("spbench_workers.host_load.time.monotonic", lambda: float(next(clock)))
    (tmp_path / "net").mkdir()

    def write_files(busy, idle, received=0, sent_bytes=0):
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
        (tmp_path / "meminfo").write_text(
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n"
        )
        (tmp_path / "net" / "dev").write_text(NET.format(received, sent_bytes))
        return tmp_path

    return write_files


def test_reports_shares_and_rates_since_the_last_call(write_kernel_files):
    proc = write_kernel_files(100, 100, 1000, 500)
    load = HostLoad(proc, proc / "none")
    write_kernel_files(190, 110, 3000, 700)
    assert load() == {"cpu": 0.9, "memory": 0.75, "received": 2000, "sent": 200}
    write_kernel_files(190, 210, 3000, 700)
    assert load() == {"cpu": 0.0, "memory": 0.75, "received": 0, "sent": 0}


def test_ports_of_infiniband_count_words_of_four_bytes(write_kernel_files):
    proc = write_kernel_files(1, 1)
    counters = proc / "mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_rcv_data").write_text("0")
    load = HostLoad(proc, proc)
    (counters / "port_rcv_data").write_text("25")
    assert load()["received"] == 100


def test_omits_values_that_the_kernel_lacks(tmp_path):
    assert HostLoad(tmp_path, tmp_path)() == {}


def test_a_heartbeat_has_at_most_200_bytes():
    line = encode_event("heartbeat", 999_999, 9_999_999, {"load": WORST})
    assert len(line) <= 200
    rank_events.decode(line)
