"""Scaling over numbers of ranks, and the last number that is efficient."""

import pytest

from spbench.report.formats.markdown import render_markdown
from spbench.report.formats.page.document import render_page
from spbench.report.model import LimitPart, ScaledPart
from spbench.report.scaling import compute_scalings, scaling_objects, scaling_remarks, scaling_rows
from support.sample_runs import make_case, make_metric, make_run


def scaled_case(np, *times, work="strong", throughput=None, name="conv", **changes):
    """Return a case on `np` ranks with medians of time or of a throughput."""
    metric_name = throughput or "time_ms"
    metrics = {"time_ms": sorted(times)[len(times) // 2]}
    metrics |= {throughput: make_metric(times[0], "1/s", "higher")} if throughput else {}
    fields = {
        "np": np,
        "metrics": metrics | changes.pop("more", {}),
        "medians": {metric_name: list(times)},
        "scaled": ScaledPart(of=name, work=work, throughput=throughput),
    }
    return make_case(f"{name}[np={np}]", **fields | changes)


def compute_scaling(*cases, minimum_gain=0.5):
    (scaling,) = compute_scalings(make_run(*cases), minimum_gain)
    return scaling


def test_strong_scaling_compares_times_with_the_fewest_ranks(messages):
    scaling = compute_scaling(scaled_case(1, 100.0), scaled_case(2, 50.0), scaled_case(4, 40.0))
    assert [row.speedup for row in scaling.rows] == pytest.approx([1.0, 2.0, 2.5])
    assert [row.efficiency for row in scaling.rows] == pytest.approx([1.0, 1.0, 0.625])
    assert [row.gain for row in scaling.rows] == [None, pytest.approx(1.0), pytest.approx(0.25)]
    assert scaling.pays_to == 2
    messages.check(scaling.sentence)


def test_perfect_weak_scaling_keeps_the_time():
    scaling = compute_scaling(
        scaled_case(2, 10.0, work="weak"),
        scaled_case(4, 10.0, work="weak"),
        scaled_case(8, 12.5, work="weak"),
    )
    assert [row.efficiency for row in scaling.rows] == pytest.approx([1.0, 1.0, 0.8])
    assert [row.speedup for row in scaling.rows] == pytest.approx([1.0, 2.0, 3.2])
    assert scaling.pays_to == 8
    assert scaling.sentence.endswith("pays to the most ranks that were tried, 8.")


def test_compares_throughputs_directly():
    scaling = compute_scaling(
        *(
            scaled_case(np, rate, throughput="rate", work="weak")
            for np, rate in [(1, 5.0), (2, 9.0)]
        )
    )
    assert [row.efficiency for row in scaling.rows] == pytest.approx([1.0, 0.9])


def test_added_ranks_pay_unless_their_most_gain_is_too_low(messages):
    first = scaled_case(1, *[100.0] * 4)
    uncertain = compute_scaling(first, scaled_case(2, 90.0, 80.0, 70.0, 55.0))
    assert uncertain.rows[1].gain < 0.5 < uncertain.rows[1].most_gain
    assert uncertain.pays_to == 2
    certain = compute_scaling(first, scaled_case(2, 90.0, 91.0, 89.0, 88.0))
    assert certain.pays_to == 1
    messages.check(certain.sentence)
    assert (
        compute_scaling(first, scaled_case(2, 90.0, 91.0, 89.0, 88.0), minimum_gain=0.1).pays_to
        == 2
    )


def test_intervals_need_four_launches(messages):
    few = compute_scaling(scaled_case(1, 9.0), scaled_case(2, 5.0))
    many = compute_scaling(scaled_case(1, *[9.0] * 4), scaled_case(2, *[4.5] * 4))
    assert few.rows[1].interval is None
    assert many.rows[1].interval == pytest.approx((1.0, 1.0))
    messages.check(scaling_remarks([few])[-1])
    assert len(scaling_remarks([many])) == 1


def test_limit_includes_the_reference_and_the_bubble():
    def rate_limit(rate):
        return {"limits": {"rate": LimitPart(value=rate, unit="1/s", measured_by="one process")}}

    first = scaled_case(1, 10.0, throughput="rate", **rate_limit(10.0))
    bubble = {"ideal_bubble": make_metric(0.2, "1", "none")}
    second = scaled_case(2, 14.0, throughput="rate", more=bubble, **rate_limit(20.0))
    assert [row.limit for row in compute_scaling(first, second).rows] == pytest.approx([1.0, 0.8])


def test_limit_of_a_time_may_come_from_the_sequential_time():
    scaling = compute_scaling(
        scaled_case(1, 10.0), scaled_case(2, 6.0, more={"sequential_ms": 9.0})
    )
    assert scaling.rows[1].limit == pytest.approx(10.0 / 4.5 / 2)
    assert scaling.rows[0].limit is None


def test_failed_case_has_a_row_with_its_reason(messages):
    broken = scaled_case(2, 1.0, status="failed", reason="rank 1: wrong halo")
    scaling = compute_scaling(scaled_case(1, 8.0), broken, scaled_case(4, 2.0))
    messages.check(scaling.rows[1].note)
    assert scaling.rows[1].speedup is None
    assert scaling.rows[2].gain == pytest.approx(1.0)
    too_few = compute_scaling(scaled_case(1, 8.0), broken)
    assert too_few.pays_to is None
    messages.check(too_few.sentence)


def test_cases_without_scaling_have_no_table():
    assert compute_scalings(make_run(make_case("a"), make_case("b"))) == []


def test_reports_have_scaling_table_and_message():
    recorded = make_run(scaled_case(1, 100.0), scaled_case(2, 50.0), scaled_case(4, 40.0))
    scalings = compute_scalings(recorded)
    assert list(scaling_rows(scalings))[2][2:9] == ("4", "40.0 ms", "2.50x", "62 %", "", "", "25 %")
    markdown = render_markdown(recorded)
    assert "| `conv` | strong | 4 | 40.0 ms | 2.50x | 62 % |" in markdown
    assert "conv: it pays to 2 ranks" in markdown
    page = render_page(recorded)
    assert "Efficiency over ranks" in page
    assert "it pays to 2 ranks" in page
    assert "Scaling" not in render_page(make_run(make_case("a")))
    (row,) = scaling_objects(scalings)
    assert row["pays_to"] == 2
    assert row["rows"][1]["efficiency"] == pytest.approx(1.0)
