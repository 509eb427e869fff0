"""Matrices of links between ranks, and the last one of a home."""

import pytest

from spbench.report.links import build_link_matrices, build_link_matrix, find_last_link_matrix
from spbench.report.recorded import load_run
from support.sample_events import (
    describe_case,
    describe_metric,
    make_complete_run,
    make_links_run,
    make_started_run,
    rank_event,
    record_run,
)
from support.sample_runs import make_case, make_metric, make_run

HOSTS = ("node01", "node01", "node02", "node02")


def measurement(source, target, value, name="delay", hosts=HOSTS, **labels):
    ends = {"source": source, "target": target, **labels}
    host_fields = {"host_a": hosts[source], "host_b": hosts[target]} if hosts else {}
    return {"name": name, "value": value, "rank": source, **ends, **host_fields}


def build_table(*rows, unit="us", better="lower"):
    metrics = {"delay": make_metric(1.0, unit, better)}
    matrix = build_link_matrix(make_case("links", metrics, measurements=list(rows)))
    [table] = matrix.tables
    return table


def test_one_table_per_metric_and_size(messages):
    names = ("delay", "rate")
    rows = [
        measurement(0, 1, float(size), name, bytes=size) for size in (8, 65536) for name in names
    ]
    metrics = {"delay": make_metric(1.0, "us"), "rate": make_metric(1.0, "GB/s", "higher")}
    matrix = build_link_matrix(make_case("links", metrics, measurements=rows))
    assert (matrix.case, matrix.ranks) == ("links", 2)
    messages.check([table.title for table in matrix.tables])
    assert [table.get_value(0, 1) for table in matrix.tables] == [8.0, 8.0, 65536.0, 65536.0]
    assert [table.labels for table in matrix.tables][::2] == [{"bytes": 8}, {"bytes": 65536}]


def test_labels_separate_tables(messages):
    titles = [
        table.title
        for table in build_link_matrix(
            make_case(
                metrics={},
                measurements=[measurement(0, 1, 1.0, window=w, mode="put") for w in (1, 2)],
            )
        ).tables
    ]
    messages.check(titles)


@pytest.mark.parametrize(
    "invalid",
    [
        {"name": "delay", "value": 1.0, "rank": 0, "bytes": 8},
        {"name": "delay", "value": 1.0, "rank": 0, "source": 0},
        measurement(0, 1, None),
        {"name": "delay", "value": 1.0, "source": "node01", "target": "node02"},
    ],
)
def test_measurement_without_two_ranks_is_not_a_link(invalid):
    assert build_link_matrix(make_case(measurements=[invalid])) is None


def test_pair_measured_one_way_counts_for_both():
    table = build_table(measurement(0, 1, 3.0), measurement(2, 1, 4.0), measurement(1, 2, 5.0))
    assert (table.get_value(0, 1), table.get_value(1, 0)) == (3.0, 3.0)
    assert (table.get_value(2, 1), table.get_value(1, 2)) == (4.0, 5.0)
    assert table.get_value(0, 2) is None
    assert table.ranks == (0, 1, 2)


@pytest.mark.parametrize(("better", "worst"), [("lower", 9.0), ("higher", 2.0), ("none", 9.0)])
def test_hosts_have_their_worst_pair(better, worst):
    rows = [measurement(0, 2, 2.0), measurement(3, 1, 9.0), measurement(0, 1, 5.0)]
    by_host = build_table(*rows, better=better).worst_by_host()
    assert by_host == {
        ("node01", "node02"): worst,
        ("node02", "node01"): worst,
        ("node01", "node01"): 5.0,
    }


def test_no_host_matrix_without_hosts():
    table = build_table(measurement(0, 1, 1.0, hosts=None))
    assert (table.hosts, table.worst_by_host()) == ({}, {})
    assert table.get_value(0, 1) == 1.0


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_value_of_a_pair_is_the_median_of_its_repeats(better):
    repeats = [measurement(0, 1, value) for value in (9.0, 3.0, 4.0)]
    assert build_table(*repeats, better=better).get_value(0, 1) == 4.0


def test_compares_pairs_with_the_same_kind():
    within = [measurement(0, 1, 1.0), measurement(2, 3, 1.0)]
    between = [
        measurement(0, 2, 10.0),
        measurement(0, 3, 10.0),
        measurement(1, 2, 30.0),
        measurement(1, 3, 12.0),
    ]
    table = build_table(*within, *between)
    assert table.typical_values() == {True: 1.0, False: 10.0}
    assert table.find_slow_pairs() == {(1, 2): 3.0}
    assert table.compute_slowness()[1, 3] == pytest.approx(1.2)


def test_low_rate_is_slow():
    table = build_table(
        measurement(0, 2, 10.0), measurement(0, 3, 10.0), measurement(1, 2, 2.0), better="higher"
    )
    assert table.find_slow_pairs() == {(1, 2): 5.0}


def test_no_pair_is_slow_without_a_better_direction():
    assert (
        build_table(measurement(0, 2, 1.0), measurement(0, 3, 9.0), better="none").find_slow_pairs()
        == {}
    )


def test_unit_of_a_case_without_results_is_from_the_catalog():
    lost = make_case(
        metrics={},
        benchmark="link.pingpong",
        measurements=[measurement(0, 1, 1.0, "bandwidth_gb_s")],
    )
    [table] = build_link_matrix(lost).tables
    assert (table.unit, table.better) == ("GB/s", "higher")


def test_run_may_have_several_matrices():
    links = [make_case(name, measurements=[measurement(0, 1, 1.0)]) for name in ("b", "a")]
    matrices = build_link_matrices(make_run(links[0], make_case("none"), links[1]))
    assert [matrix.case for matrix in matrices] == ["b", "a"]


# The last matrix of a home


def rename_run(folder, name):
    """Give a run another id, so that runs of one second have an order."""
    return folder.path.rename(folder.path.with_name(name))


def link_events(value, case="links"):
    pair = ((0, "node01"), (1, "node02"))
    return make_links_run({pair: value}, {}, case)


def test_finds_the_newest_run_with_links(tmp_path):
    rename_run(record_run(tmp_path, link_events(1.0)), "20260101")
    rename_run(record_run(tmp_path, link_events(2.0)), "20260102")
    rename_run(record_run(tmp_path, make_complete_run()[:3]), "20260103")
    result = find_last_link_matrix(tmp_path)
    assert result
    summary, matrix = result
    assert (summary.id, matrix.tables[0].get_value(0, 1)) == ("20260102", 2.0)
    assert matrix.tables[0].worst_by_host()["node01", "node02"] == 2.0


def test_recognizes_links_by_labels_and_not_by_benchmark(tmp_path):
    link_case = describe_case("a", metrics=[describe_metric("m", "W")], benchmark="never.heard")
    labels = {"source": 0, "target": 1, "watts": 3}
    metric_event = rank_event("metric", 0, name="m", value=4.0, labels=labels)
    folder = record_run(tmp_path, [*make_started_run(link_case), metric_event])
    result = find_last_link_matrix(tmp_path)
    assert result
    summary, matrix = result
    assert (summary.id, matrix.tables[0].labels) == (folder.id, {"watts": 3})


def test_takes_the_matrix_with_the_most_ranks(tmp_path):
    two = link_events(1.0, "two")
    three = make_links_run({((0, "x"), (rank, "x")): 1.0 for rank in (1, 2)}, {}, "three")
    cases = [*two[0]["cases"], *three[0]["cases"]]
    events = [{**two[0], "cases": cases}, *two[1:], *three[1:]]
    record_run(tmp_path, events)
    assert find_last_link_matrix(tmp_path)[1].case == "three"


def test_skips_an_unreadable_run(tmp_path):
    rename_run(record_run(tmp_path, link_events(1.0)), "20260101")
    damaged = rename_run(record_run(tmp_path, link_events(2.0)), "20260102")
    (damaged / "events.jsonl").write_text('{"target"\n')
    assert find_last_link_matrix(tmp_path)[0].id == "20260101"


def test_home_without_links_has_no_last_matrix(tmp_path):
    assert find_last_link_matrix(tmp_path) is None
    record_run(tmp_path, make_complete_run()[:3])
    assert find_last_link_matrix(tmp_path) is None


def test_recorded_run_of_links_can_be_read(tmp_path):
    folder = record_run(tmp_path, link_events(1.5))
    [matrix] = build_link_matrices(load_run(folder))
    assert matrix.tables[0].hosts == {0: "node01", 1: "node02"}
