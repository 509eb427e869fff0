"""Counters of the kernel for other work on a rank's cores."""

import os

import pytest

from spbench_workers.disturbance import Counters, find_disturbances, measure_slowdown, read_counters


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2})
    files = {
        "self/schedstat": "5000000000 1500000000 77\n",
        "self/cgroup": "1:cpu,cpuacct:/old\n0::/own\n",
        "stat": "cpu  9 0 0 0 0 0 0 900 0 0\n"
        "cpu0 1 0 0 9 0 0 0 100 0 0\ncpu1 1 0 0 9 0 0 0 700 0 0\ncpu2 1 0 0 9 0 0 0 50 0 0\n",
        "fs/cgroup/own/cpu.stat": "usage_usec 5\nthrottled_usec 250000\n",
        "devices/system/cpu/cpu2/thermal_throttle/core_throttle_count": "3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_reads_counters_of_this_process_and_its_cpus(kernel):
    counters = read_counters(kernel, kernel)
    assert counters.waited == pytest.approx(1.5)
    assert counters.stolen == pytest.approx(150 / os.sysconf("SC_CLK_TCK"))
    assert counters.throttled == pytest.approx(0.25)
    assert counters.hot == 3


def test_reads_nanoseconds_of_an_older_control_group(kernel):
    (kernel / "fs/cgroup/own/cpu.stat").unlink()
    (kernel / "fs/cgroup/cpu/old").mkdir(parents=True)
    (kernel / "fs/cgroup/cpu/old/cpu.stat").write_text("nr_throttled 2\nthrottled_time 70000000\n")
    assert read_counters(kernel, kernel).throttled == pytest.approx(0.07)


def test_missing_counters_are_zero(tmp_path):
    counters = read_counters(tmp_path, tmp_path)
    assert (counters.waited, counters.stolen, counters.throttled, counters.hot) == (0, 0, 0, 0)


def test_disturbances_are_shares_of_the_elapsed_time():
    before = Counters(10.0, 1.0, 4.0, 0.0, 2.0)
    after = Counters(14.0, 2.0, 6.0, 0.0, 5.0)
    disturbances = find_disturbances(before, after, cpus=2)
    assert disturbances == {"waited": 0.25, "stolen": 0.25, "hot": 3.0}
    assert find_disturbances(before, before, cpus=2) == {}


def test_ignores_the_work_of_the_console_in_a_short_case():
    before = Counters(10.0, 1.0, 0.0, 0.0, 0.0)
    after = Counters(10.2, 1.09, 0.0, 0.0, 0.0)
    assert find_disturbances(before, after, cpus=2) == {}


def test_a_cpu_is_slow_only_below_its_base_frequency(tmp_path):
    folder = tmp_path / "devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "base_frequency").write_text("2400000")
    (folder / "scaling_cur_freq").write_text("1200000")
    assert measure_slowdown([0, 1], tmp_path) == 0.5
    (folder / "scaling_cur_freq").write_text("3600000")
    assert measure_slowdown([0], tmp_path) == 0.0
