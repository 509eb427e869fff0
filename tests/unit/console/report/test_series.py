import pytest

from spbench.report.series import build_parameter_series, build_run_series, find_swept_parameters
from unit.results import case, figure, run

# Over runs


def dated(name, started, *cases):
    return run(*cases, id=name, started=started)


def points_of(series):
    return [(point.x, point.label, point.y) for point in series.points]


def test_a_metric_over_runs_goes_by_time():
    runs = [dated("new", 200.0, case("a", {"m": 3.0})), dated("old", 100.0, case("a", {"m": 1.0}))]
    series = build_run_series(runs, "a", "m")
    assert points_of(series) == [(100.0, "old", 1.0), (200.0, "new", 3.0)]
    assert (series.name, series.metric, series.unit, series.numeric) == ("a", "m", "ms", True)
    assert series.better == "lower"


def test_runs_that_lack_the_case_or_the_metric_are_left_out():
    runs = [
        dated("1", 1.0, case("b", {"m": 1.0})),
        dated("2", 2.0, case("a", {"k": 1.0})),
        dated("3", 3.0, case("a", {"m": 5.0})),
    ]
    assert points_of(build_run_series(runs, "a", "m")) == [(3.0, "3", 5.0)]


def test_a_run_without_a_start_makes_the_runs_count():
    runs = [dated("b", None, case("a", {"m": 1.0})), dated("c", 7.0, case("a", {"m": 2.0}))]
    series = build_run_series(runs, "a", "m")
    assert not series.numeric
    assert points_of(series) == [(0.0, "b", 1.0), (1.0, "c", 2.0)]


def test_another_unit_than_the_newest_runs_is_left_out():
    runs = [
        dated("old", 1.0, case("a", {"m": figure(5000.0, "us")})),
        dated("new", 2.0, case("a", {"m": 5.0})),
    ]
    series = build_run_series(runs, "a", "m")
    assert (series.unit, points_of(series)) == ("ms", [(2.0, "new", 5.0)])


def test_a_metric_that_no_run_has_is_an_empty_series():
    assert build_run_series([dated("1", 1.0, case("a"))], "a", "m").points == ()


def test_points_have_the_extent_of_their_samples_and_say_where_they_are_from():
    several = case("a", {"m": figure(3.0, spread=0.5)}, status="failed")
    [point] = build_run_series([run(several)], "a", "m").points
    assert (point.low, point.high) == (2.5, 3.5)
    assert (point.case, point.status, point.run) == ("a", "failed", run().summary.id)
    [single] = build_run_series([run(case("a", {"m": figure(3.0, n=1)}))], "a", "m").points
    assert (single.low, single.high) == (None, None)


# Over a parameter


def swept(time, shown=None, np=2, **params):
    """A case of the name ``s``; its id shows all parameters, or what is said to be shown."""
    keys = params if shown is None else shown
    inner = ",".join(f"{key}={value}" for key, value in keys.items())
    return case(f"s[{inner}]", {"m": time}, params=params, np=np)


def test_what_the_ids_sweep_is_swept():
    cases = [
        swept(1.0, {"method": "square", "size": 8}, method="square", size=8, grid="2x2", other=1),
        swept(2.0, {"method": "vertical", "size": 8}, method="vertical", size=8, grid="1x4", k=1),
    ]
    assert find_swept_parameters(run(*cases), "s") == ["method"]


def test_parameters_that_differ_are_swept_where_ids_do_not_say():
    cases = [
        case("one", name="s", params={"a": 1, "b": 2}, np=2),
        case("two", name="s", params={"a": 1, "b": 3}, np=4),
    ]
    assert find_swept_parameters(run(*cases), "s") == ["b", "np"]


def test_ranks_are_swept_like_a_parameter():
    cases = [swept(float(np), {"np": np}, np=np, size=1) for np in (4, 2)]
    assert find_swept_parameters(run(*cases), "s") == ["np"]
    [series] = build_parameter_series(run(*cases), "s", "m", "np")
    assert points_of(series) == [(2.0, "2", 2.0), (4.0, "4", 4.0)]


def test_there_is_nothing_swept_in_one_case_or_in_none():
    assert find_swept_parameters(run(swept(1.0, size=1)), "s") == []
    assert find_swept_parameters(run(), "s") == []
    assert build_parameter_series(run(), "s", "m", "size") == []


def test_there_is_one_series_for_each_combination_of_the_others():
    cases = [
        swept(size / 4 + len(method), method=method, size=size, dtype="fp32")
        for size in (16, 4)
        for method in ("square", "vertical")
    ]
    square, vertical = build_parameter_series(run(*cases), "s", "m", "size")
    assert (square.name, vertical.name) == ("method=square", "method=vertical")
    assert points_of(square) == [(4.0, "4", 7.0), (16.0, "16", 10.0)]
    assert points_of(vertical) == [(4.0, "4", 9.0), (16.0, "16", 12.0)]
    assert square.numeric


def test_words_stand_in_the_order_in_which_they_come():
    cases = [swept(1.0, method=word, size=size) for size in (1, 2) for word in ("v", "h", "square")]
    del cases[0]
    first, second = build_parameter_series(run(*cases), "s", "m", "method")
    assert not first.numeric
    assert [(point.x, point.label) for point in first.points] == [(0.0, "h"), (1.0, "square")]
    assert [(point.x, point.label) for point in second.points] == [
        (0.0, "h"),
        (1.0, "square"),
        (2.0, "v"),
    ]


@pytest.mark.parametrize("values", [(True, False), (8, "8x16"), ([8], [8, 64])])
def test_what_is_no_number_is_a_word(values):
    cases = [case(f"s[p={at}]", {"m": 1.0}, params={"p": value}) for at, value in enumerate(values)]
    [series] = build_parameter_series(run(*cases), "s", "m", "p")
    assert not series.numeric
    assert [point.x for point in series.points] == [0.0, 1.0]


def test_a_size_is_a_number_and_shows_as_it_was_written():
    cases = [swept(1.0, {"size": shown}, size=size) for shown, size in (("64KiB", 65536), ("8", 8))]
    [series] = build_parameter_series(run(*cases), "s", "m", "size")
    assert points_of(series) == [(8.0, "8", 1.0), (65536.0, "64KiB", 1.0)]


def test_parameters_in_step_make_one_series():
    cases = [swept(1.0, size=size, batch=batch) for size, batch in ((256, 4), (512, 2), (1024, 2))]
    [series] = build_parameter_series(run(*cases), "s", "m", "size")
    assert (series.name, len(series.points)) == ("s", 3)
    by_batch = build_parameter_series(run(*cases), "s", "m", "batch")
    assert [one.name for one in by_batch] == ["size=256", "size=512", "size=1024"]


def test_a_case_that_was_not_measured_is_left_out():
    lost = case("s[size=2]", {}, params={"size": 2}, status="error")
    [series] = build_parameter_series(
        run(swept(1.0, size=1), lost, swept(3.0, size=3)), "s", "m", "size"
    )
    assert [point.x for point in series.points] == [1.0, 3.0]
