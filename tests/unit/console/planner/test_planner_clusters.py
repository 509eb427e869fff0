"""Tests of clusters: files, presets, quantities, and measured runs."""

import json
from contextlib import suppress
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench.errors import ExitCode
from spbench.planner.cluster.cluster_file import (
    BYTES,
    RATES,
    SECONDS,
    ClusterFile,
    load_cluster,
    parse_quantity,
    read_cluster,
)
from spbench.planner.cluster.cluster_text import render_cluster
from spbench.planner.cluster.machines import (
    ETHERNET_25,
    NVLINK,
    PRESETS,
    V100,
    Cluster,
    DeviceKind,
    Link,
    Machine,
    make_cluster_from_ends,
    make_hpgo_cluster,
)
from spbench.planner.cluster.measured import build_measured_cluster, fit_link
from spbench.planner.errors import ClusterError, PlannerError
from spbench.record.runs.folder import RunFolder
from spbench.report.build import build_rejected_report
from spbench.suites.settings import build_json_schema
from spbench.suites.yaml_nodes import parse_yaml
from support.paths import EXAMPLES

TEXT = """\
schema: spbench.cluster/1
name: mixed
devices:
  v100: {memory: 16GB}
  a100: {memory: 40GiB, speed: 2.5}
links:
  nvlink: {bandwidth: 25GB/s, latency: 5us}
  ethernet: {bandwidth: 8Gbit/s, latency: 1e-4, all_reduce: 3e9}
  fast: {bandwidth: 10GB/s}
machines:
  - {name: rack, devices: {v100: 2}, link: nvlink, count: 2}
  - {name: big, devices: {v100: 1, a100: 2}, link: nvlink}
  - {devices: {a100: 1}}
between: ethernet
pairs:
  - {machines: [big, rack-0], link: fast}
"""


def read_errors(text):
    with pytest.raises(ClusterError) as caught:
        read_cluster(text, "c.yaml", "c")
    return str(caught.value)


def find_device_link(cluster, a, b):
    return cluster.find_link(cluster.find_machine(a), cluster.find_machine(b))


def test_reads_a_cluster_of_mixed_kinds():
    cluster = read_cluster(TEXT, "c.yaml", "c")
    assert [machine.name for machine in cluster.machines] == ["rack-0", "rack-1", "big", "node2"]
    assert (cluster.name, cluster.sizes, cluster.ends) == ("mixed", (2, 2, 3, 1), (2, 4, 7, 8))
    assert [kind.name for kind in cluster.kinds] == ["v100"] * 5 + ["a100"] * 3
    assert cluster.kinds[7] == DeviceKind("a100", 40 * 2.0**30, 2.5)
    assert find_device_link(cluster, 0, 1) == Link("nvlink", 25e9, 5e-6)
    assert find_device_link(cluster, 0, 2) == Link("ethernet", 1e9, 1e-4, 3e9)
    assert find_device_link(cluster, 6, 1) == find_device_link(cluster, 1, 6) == Link("fast", 10e9)
    assert [cluster.find_machine(device) for device in range(8)] == [0, 0, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("spbench.cluster/1", "x", "c.yaml:1:9: error: schema must be spbench.cluster/1, not 'x'"),
        ("16GB", "16GBs", "c.yaml:4:18: error: '16GBs' is no number with one of the units B, kB"),
        ("16GB", "-1", "c.yaml:4:18: error: memory must be from 1 to 1e18 bytes, not -1"),
        ("16GB", "0", "memory must be from 1 to 1e18 bytes, not 0"),
        ("speed: 2.5", "speed: 1e308", "speed must be from 1e-6 to 1e6, not 1e+308"),
        ("speed: 2.5", "speed: 1e-320", "c.yaml:5:32: error: speed must be from 1e-6"),
        ("speed: 2.5", f"speed: 1{'0' * 400}", "the number has more than 250 digits"),
        ("bandwidth: 10GB/s", "bandwidth: 1e-320", "bandwidth must be from 1 to 1e18 bytes a se"),
        ("bandwidth: 10GB/s", "bandwidth: 9e999999GB/s", "is no finite number"),
        ("speed: 2.5", "sped: 2.5", "unknown key 'sped' in devices.a100 (did you mean sp"),
        ("bandwidth: 10GB/s", "latency: 1", "links.fast lacks the key 'bandwidth'"),
        ("bandwidth: 10GB/s", "bandwidth: 0", "bandwidth must be from 1 to 1e18"),
        ("bandwidth: 10GB/s", "bandwidth: .inf", "is no finite number"),
        ("between: ethernet", "between: ether", "no link is called 'ether' (did you mean eth"),
        ("between: ethernet", "", "has machines without a link between them"),
        ("{v100: 2}, link: nvlink", "{v100: 2}", "has several devices and no link for them"),
        ("{v100: 2}", "{v100: 0}", "machines[0].devices.v100 must be at least 1, not 0"),
        ("{v100: 2}", "{p100: 2}", "no device is called 'p100' (did you mean v100?)"),
        ("{v100: 2}", "{v100: 70000}", "machines[0].devices.v100 must be at most 65536"),
        ("{v100: 2}", "{v100: 2.5}", "machines[0].devices.v100 must be a whole number, not 2.5"),
        ("{v100: 2}", "8", 'devices must be a mapping, not 8 (such as {"v100": 8})'),
        (
            "{v100: 2}",
            "{}",
            "devices must be a mapping with at least one item, not an empty mapping",
        ),
        (
            "count: 2",
            "count: 0",
            "c.yaml:11:59: error: machines[0].count must be at least 1, not 0",
        ),
        (
            "{v100: 2}, link: nvlink, count: 2",
            "{v100: 65536}, link: nvlink, count: 65536",
            "the machines up to here have 4294967296 devices; give a cluster at most 65536",
        ),
        ("big, devices", "rack-1, devices", "duplicate machine 'rack-1'"),
        ("[big, rack-0]", "[big, rack]", "no machine is called 'rack' (did you mean rack-"),
        ("[big, rack-0]", "[big]", "a pair is {machines: [a, b], link: name}"),
        (", link: fast}", "}", "pairs[0] lacks the key 'link'"),
        ("between", "betwen", "unknown key 'betwen' in the cluster (did you mean between?)"),
        ("between: ethernet", "between:", "between must be text, not empty"),
        ("name: mixed", "name: [1]", "c.yaml:2:7: error: name must be text, not a list"),
        ("machines:\n", "machines: []\nold:\n", "machines must be a list with at least one item"),
        ("name: mixed", "name: mixed\nname: twice", "duplicate key 'name'"),
    ],
)
def test_errors_have_their_position(old, new, error):
    assert old in TEXT
    assert error in read_errors(TEXT.replace(old, new, 1))


def test_all_errors_are_reported_at_once(messages):
    text = TEXT.replace("16GB", "16GBs").replace("{v100: 2}", "{p100: 0}")
    text = text.replace("between: ethernet", "between: ether\npair: []")
    text = text.replace("[big, rack-0], link: fast", "[big, big], link: slow")
    messages.check(read_errors(text).replace("c.yaml:", "").replace(" error:", "").splitlines())


def test_rejects_duplicate_pair(messages):
    twice = TEXT + "  - {machines: [rack-0, big], link: nvlink}\n"
    messages.check(read_errors(twice))


SCHEMA = build_json_schema(ClusterFile)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_schema_accepts_readable_clusters():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    examples = EXAMPLES
    texts = [TEXT, *(path.read_text() for path in examples.glob("*.yaml"))]
    assert len(texts) == 3
    for text in texts:
        read_cluster(text, "c.yaml", "c")
        VALIDATOR.validate(parse_yaml(text).root.data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("spbench.cluster/1", "spbench.cluster/2"),
        ("16GB", "16GBs"),
        ("16GB", "-1"),
        ("speed: 2.5", "speed: 0"),
        ("speed: 2.5", "speed: 2s"),
        ("speed: 2.5", "sped: 2.5"),
        ("bandwidth: 10GB/s", "latency: 1"),
        ("bandwidth: 10GB/s", "bandwidth: 10GB"),
        ("{v100: 2}", "{v100: 0}"),
        ("{v100: 2}", "{}"),
        ("count: 2", "count: 0"),
        ("between: ethernet", "between:"),
        ("[big, rack-0]", "[big]"),
        (", link: fast}", "}"),
        ("between", "betwen"),
        ("name: mixed", "name: [1]"),
        ("machines:\n", "old:\n"),
    ],
)
def test_schema_rejects_invalid_clusters(old, new):
    text = TEXT.replace(old, new, 1)
    assert read_errors(text)
    assert not VALIDATOR.is_valid(parse_yaml(text).root.data)


@pytest.mark.parametrize("text", ["", "3", "[a]", "a: [", "machines: 3\nschema: spbench.cluster/1"])
def test_rejects_text_that_is_not_a_cluster(text):
    assert read_errors(text).startswith("c.yaml:")


@pytest.mark.parametrize("text", ["", "3", "[a]"])
def test_error_for_a_non_mapping_shows_the_first_line(text):
    expected = "c.yaml:1:1: error: the cluster begins with 'schema: spbench.cluster/1'"
    assert read_errors(text) == expected


@settings(max_examples=60)
@given(st.integers(0, len(TEXT) - 1), st.text(max_size=4))
def test_damaged_cluster_gives_no_other_error(index, damage):
    with suppress(ClusterError):
        read_cluster(TEXT[:index] + damage + TEXT[index + 3 :], "c.yaml", "c")


def test_loads_a_cluster_file(tmp_path):
    path = tmp_path / "racks.yaml"
    path.write_text(TEXT.replace("name: mixed\n", ""))
    assert load_cluster(path).name == "racks"
    with pytest.raises(PlannerError, match="cannot read"):
        load_cluster(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("16GB", BYTES, 16e9),
        ("1.5 GiB", BYTES, 1.5 * 2**30),
        (7, BYTES, 7.0),
        ("25Gbit/s", RATES, 25e9 / 8),
        ("3GB/s", RATES, 3e9),
        ("5us", SECONDS, 5e-6),
        ("1e-3 ms", SECONDS, 1e-6),
    ],
)
def test_parses_quantities_with_units(text, units, value):
    assert parse_quantity(text, units) == pytest.approx(value)


@pytest.mark.parametrize("text", ["16", "GB", "1e999GB", True, None, [1], "1 fortnight"])
def test_rejects_invalid_quantities(text):
    with pytest.raises(ValueError, match="is no"):
        parse_quantity(text, BYTES)


# Presets and device numbers


def test_machine_ends_are_exclusive():
    cluster = make_cluster_from_ends([8, 16])
    assert (cluster.sizes, cluster.device_count, cluster.ends) == ((8, 8), 16, (8, 16))
    assert (find_device_link(cluster, 0, 7), find_device_link(cluster, 7, 8)) == (
        NVLINK,
        ETHERNET_25,
    )
    assert make_cluster_from_ends([1]).sizes == (1,)


@pytest.mark.parametrize("ends", [[], [0], [8, 8], [8, 4], [-1]])
def test_machine_ends_must_rise(ends, messages):
    with messages.raises(PlannerError):
        make_cluster_from_ends(ends)


def test_presets_match_the_dapple_clusters():
    assert {name: preset.sizes for name, preset in PRESETS.items()} == {
        "dapple-a": (8, 8),
        "dapple-b": (1,) * 16,
        "dapple-c": (1,) * 16,
    }
    b, c = (PRESETS[name].between for name in ("dapple-b", "dapple-c"))
    assert b.bandwidth / c.bandwidth == pytest.approx(2.5)
    assert b.all_reduce_bandwidth / c.all_reduce_bandwidth == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Cluster("c", ()), "no machines"),
        (lambda: Machine("m", ()), "no devices"),
        (
            lambda: make_cluster_from_ends([8, 10**12]),
            "has 1000000000000 devices; give it at most 65536",
        ),
        (
            lambda: Cluster(
                "c", (Machine("m", (V100,) * 65536, NVLINK), Machine("n", (V100,))), NVLINK
            ),
            "the cluster c has 65537 devices",
        ),
        (lambda: DeviceKind("d", 1e300), "the device d needs a memory from 1 to 1e18 bytes"),
        (lambda: Link("l", 1.0, 1e9), "latency and an overhead from 0 to 1e6 s"),
        (lambda: Link("l", float("nan")), "bandwidths from 1 to"),
        (lambda: Link("l", 1.0, -1.0), "latency and an overhead from 0 to 1e6 s"),
        (lambda: Link("l", 1.0, overhead_s=-1.0), "latency and an overhead from 0 to 1e6 s"),
        (lambda: Cluster("c", PRESETS["dapple-a"].machines), "without a link"),
        (
            lambda: Cluster("c", PRESETS["dapple-a"].machines, NVLINK, {(1, 0): NVLINK}),
            "a link of machines it does not have",
        ),
    ],
)
def test_rejects_invalid_clusters(make, error):
    with pytest.raises(PlannerError, match=error):
        make()


def test_too_many_devices_are_reported_once(messages):
    machine = "  - {name: big, devices: {v100: 1, a100: 2}, link: nvlink}\n"
    more = "".join(machine.replace("big", f"m{index}").replace("2", "65000") for index in range(9))
    [line] = read_errors(TEXT.replace(machine, machine + more)).splitlines()
    messages.check(line)


def test_message_time_is_latency_plus_bytes_over_bandwidth():
    assert Link("l", 2.0, 3.0).compute_seconds(4.0) == 5.0
    assert Link("l", 2.0, 3.0).compute_seconds(0.0) == 0.0


# Measured


def record_run(home, hosts, micros, sizes=(8, 1 << 20), benchmark="link.pingpong"):
    """Record a run of all pairs; ``micros(same_host, size)`` is the latency in us."""
    rows = [
        {
            "name": "latency_us",
            "value": micros(hosts[a] == hosts[b], size),
            "rank": a,
            "source": a,
            "target": b,
            "bytes": size,
            "host_a": hosts[a],
            "host_b": hosts[b],
        }
        for size in sizes
        for b in range(len(hosts))
        for a in range(b)
    ]
    case = {
        "id": "links",
        "name": "links",
        "benchmark": benchmark,
        "np": len(hosts),
        "status": "passed",
        "reason": None,
        "params": {},
        "metrics": {},
        "checks": [],
        "limits": {},
        "measurements": rows,
        "started": None,
        "finished": None,
        "attempts": 1,
        "warmup": None,
        "launch": None,
        "expectations": [],
        "ranks": [],
    }
    folder = RunFolder(home / "run1")
    folder.path.mkdir()
    folder.write_json("run.json", {"suite": "links", "verdict": "passed"})
    folder.write_json(
        "report.json", build_rejected_report("", ExitCode.PASSED, []) | {"cases": [case]}
    )
    return folder


def compute_latency(same_host, size):
    """Return us: 5 us and 10 GB/s within a host, 20 us and 1 GB/s between two hosts."""
    return 5.0 + size / 10e3 if same_host else 20.0 + size / 1e3


def test_cluster_is_fitted_to_a_run(tmp_path):
    hosts = ("node01", "node01", "node02", "node02")
    cluster = build_measured_cluster(
        record_run(tmp_path, hosts, compute_latency), memory_bytes=64e9
    )
    assert [machine.name for machine in cluster.machines] == ["node01", "node02"]
    assert (cluster.name, cluster.sizes) == ("run1", (2, 2))
    assert cluster.kinds[0].memory_bytes == 64e9
    for pair, alpha, beta in (((0, 1), 5e-6, 10e9), ((1, 2), 20e-6, 1e9)):
        link = find_device_link(cluster, *pair)
        assert link.latency_s == pytest.approx(alpha, rel=1e-3)
        assert link.bandwidth == pytest.approx(beta, rel=1e-6)


def test_hosts_with_one_rank_need_no_inner_link(tmp_path):
    cluster = build_measured_cluster(record_run(tmp_path, ("b", "a", "c"), compute_latency))
    assert [machine.name for machine in cluster.machines] == ["b", "a", "c"]
    assert cluster.machines[0].link is None
    assert find_device_link(cluster, 0, 1).bandwidth == pytest.approx(1e9, rel=1e-6)


def test_run_without_links_is_rejected(tmp_path, messages):
    with messages.raises(PlannerError):
        build_measured_cluster(record_run(tmp_path, ("a", "a"), compute_latency, sizes=(8,)))


def test_missing_pair_is_rejected(tmp_path, messages):
    folder = record_run(tmp_path, ("a", "b", "c"), compute_latency)
    report = json.loads(folder.report.read_text())
    rows = report["cases"][0]["measurements"]
    report["cases"][0]["measurements"] = [row for row in rows if row["target"] - row["source"] == 1]
    folder.write_json("report.json", report)
    with messages.raises(PlannerError):
        build_measured_cluster(folder)


def test_rejects_times_that_do_not_grow(messages):
    with messages.raises(PlannerError):
        fit_link("l", {8: 2e-6, 64: 2e-6})


@pytest.mark.parametrize("cluster", [*PRESETS.values(), make_hpgo_cluster("1x2,1x1", (2, 1))])
def test_assumed_clusters_survive_writing_and_reading(tmp_path, cluster):
    path = tmp_path / "written.yaml"
    path.write_text(render_cluster(cluster))
    loaded = load_cluster(path)
    assert loaded == replace(cluster, name="written", is_assumed=False)
