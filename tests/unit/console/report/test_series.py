"""Series of a metric over runs or over a parameter."""

import pytest

from spbench.report.series import build_parameter_series, build_run_series, find_swept_parameters
from support.sample_runs import make_case, make_metric, make_run

# Over runs


def build_run(name, started, *cases):
    return make_run(*cases, id=name, started=started)


def list_points(series):
    return [(point.x, point.label, point.y) for point in series.points]


def test_series_over_runs_is_sorted_by_time():
    runs = [
        build_run("new", 200.0, make_case("a", {"m": 3.0})),
        build_run("old", 100.0, make_case("a", {"m": 1.0})),
    ]
    series = build_run_series(runs, "a", "m")
    assert list_points(series) == [(100.0, "old", 1.0), (200.0, "new", 3.0)]
    assert (series.name, series.metric, series.unit, series.numeric) == ("a", "m", "ms", True)
    assert series.better == "lower"


def test_omits_runs_without_the_case_or_metric():
    runs = [
        build_run("1", 1.0, make_case("b", {"m": 1.0})),
        build_run("2", 2.0, make_case("a", {"k": 1.0})),
        build_run("3", 3.0, make_case("a", {"m": 5.0})),
    ]
    assert list_points(build_run_series(runs, "a", "m")) == [(3.0, "3", 5.0)]


def test_run_without_a_start_makes_the_axis_ordinal():
    runs = [
        build_run("b", None, make_case("a", {"m": 1.0})),
        build_run("c", 7.0, make_case("a", {"m": 2.0})),
    ]
    series = build_run_series(runs, "a", "m")
    assert not series.numeric
    assert list_points(series) == [(0.0, "b", 1.0), (1.0, "c", 2.0)]


def test_omits_runs_with_another_unit_than_the_newest():
    runs = [
        build_run("old", 1.0, make_case("a", {"m": make_metric(5000.0, "us")})),
        build_run("new", 2.0, make_case("a", {"m": 5.0})),
    ]
    series = build_run_series(runs, "a", "m")
    assert (series.unit, list_points(series)) == ("ms", [(2.0, "new", 5.0)])


def test_unknown_metric_gives_an_empty_series():
    assert build_run_series([build_run("1", 1.0, make_case("a"))], "a", "m").points == ()


def test_points_have_range_and_origin_of_their_samples():
    part = make_case("a", {"m": make_metric(3.0, spread=0.5)}, status="failed")
    [point] = build_run_series([make_run(part)], "a", "m").points
    assert (point.low, point.high) == (2.5, 3.5)
    assert (point.case, point.status, point.run) == ("a", "failed", make_run().summary.id)
    [single] = build_run_series(
        [make_run(make_case("a", {"m": make_metric(3.0, n=1)}))], "a", "m"
    ).points
    assert (single.low, single.high) == (None, None)


# Over a parameter


def sweep_case(time, shown=None, np=2, **params):
    """Return a case named ``s`` with all parameters, or those of ``shown``, in its id."""
    id_params = params if shown is None else shown
    label = ",".join(f"{key}={value}" for key, value in id_params.items())
    return make_case(f"s[{label}]", {"m": time}, params=params, np=np)


def test_swept_parameters_are_those_that_differ_in_ids():
    cases = [
        sweep_case(
            1.0, {"method": "square", "size": 8}, method="square", size=8, grid="2x2", other=1
        ),
        sweep_case(
            2.0, {"method": "vertical", "size": 8}, method="vertical", size=8, grid="1x4", k=1
        ),
    ]
    assert find_swept_parameters(make_run(*cases), "s") == ["method"]


def test_swept_parameters_of_plain_ids_are_those_that_differ():
    cases = [
        make_case("one", name="s", params={"a": 1, "b": 2}, np=2),
        make_case("two", name="s", params={"a": 1, "b": 3}, np=4),
    ]
    assert find_swept_parameters(make_run(*cases), "s") == ["b", "np"]


def test_number_of_ranks_is_swept_like_a_parameter():
    cases = [sweep_case(float(np), {"np": np}, np=np, size=1) for np in (4, 2)]
    assert find_swept_parameters(make_run(*cases), "s") == ["np"]
    [series] = build_parameter_series(make_run(*cases), "s", "m", "np")
    assert list_points(series) == [(2.0, "2", 2.0), (4.0, "4", 4.0)]


def test_fewer_than_two_cases_have_no_swept_parameter():
    assert find_swept_parameters(make_run(sweep_case(1.0, size=1)), "s") == []
    assert find_swept_parameters(make_run(), "s") == []
    assert build_parameter_series(make_run(), "s", "m", "size") == []


def test_one_series_per_combination_of_other_parameters():
    cases = [
        sweep_case(size / 4 + len(method), method=method, size=size, dtype="fp32")
        for size in (16, 4)
        for method in ("square", "vertical")
    ]
    square, vertical = build_parameter_series(make_run(*cases), "s", "m", "size")
    assert (square.name, vertical.name) == ("method=square", "method=vertical")
    assert list_points(square) == [(4.0, "4", 7.0), (16.0, "16", 10.0)]
    assert list_points(vertical) == [(4.0, "4", 9.0), (16.0, "16", 12.0)]
    assert square.numeric


def test_text_values_keep_their_order():
    cases = [
        sweep_case(1.0, method=method, size=size)
        for size in (1, 2)
        for method in ("v", "h", "square")
    ]
    del cases[0]
    first, second = build_parameter_series(make_run(*cases), "s", "m", "method")
    assert not first.numeric
    assert [(point.x, point.label) for point in first.points] == [(0.0, "h"), (1.0, "square")]
    assert [(point.x, point.label) for point in second.points] == [
        (0.0, "h"),
        (1.0, "square"),
        (2.0, "v"),
    ]


@pytest.mark.parametrize("values", [(True, False), (8, "8x16"), ([8], [8, 64])])
def test_values_that_are_not_numbers_are_text(values):
    cases = [
        make_case(f"s[p={index}]", {"m": 1.0}, params={"p": value})
        for index, value in enumerate(values)
    ]
    [series] = build_parameter_series(make_run(*cases), "s", "m", "p")
    assert not series.numeric
    assert [point.x for point in series.points] == [0.0, 1.0]


def test_size_is_a_number_with_its_written_label():
    cases = [
        sweep_case(1.0, {"size": shown}, size=size) for shown, size in (("64KiB", 65536), ("8", 8))
    ]
    [series] = build_parameter_series(make_run(*cases), "s", "m", "size")
    assert list_points(series) == [(8.0, "8", 1.0), (65536.0, "64KiB", 1.0)]


def test_parameters_that_vary_together_make_one_series():
    cases = [
        sweep_case(1.0, size=size, batch=batch) for size, batch in ((256, 4), (512, 2), (1024, 2))
    ]
    [by_size] = build_parameter_series(make_run(*cases), "s", "m", "size")
    assert (by_size.name, len(by_size.points)) == ("s", 3)
    by_batch = build_parameter_series(make_run(*cases), "s", "m", "batch")
    assert [series.name for series in by_batch] == ["size=256", "size=512", "size=1024"]


def test_omits_a_case_without_a_value():
    lost = make_case("s[size=2]", {}, params={"size": 2}, status="error")
    [series] = build_parameter_series(
        make_run(sweep_case(1.0, size=1), lost, sweep_case(3.0, size=3)), "s", "m", "size"
    )
    assert [point.x for point in series.points] == [1.0, 3.0]
