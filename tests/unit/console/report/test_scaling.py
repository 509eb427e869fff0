"""Efficiency over numbers of ranks, and where more do not pay."""

import pytest

from spbench.report.formats.markdown import render_markdown
from spbench.report.formats.page.document import render_page
from spbench.report.model import LimitPart, ScaledPart
from spbench.report.scaling import compute_scalings, scaling_objects, scaling_remarks, scaling_rows
from unit.results import case, figure, run


def at(np, *times, work="strong", throughput=None, of="conv", **changes):
    """A case on some ranks, with the median of each launch: times, or a throughput's values."""
    name = throughput or "time_ms"
    metrics = {"time_ms": sorted(times)[len(times) // 2]}
    metrics |= {throughput: figure(times[0], "1/s", "higher")} if throughput else {}
    given = {
        "np": np,
        "metrics": metrics | changes.pop("more", {}),
        "medians": {name: list(times)},
        "scaled": ScaledPart(of=of, work=work, throughput=throughput),
    }
    return case(f"{of}[np={np}]", **given | changes)


def one(*cases, worth=0.5):
    (found,) = compute_scalings(run(*cases), worth)
    return found


def test_strong_scaling_is_the_time_on_the_fewest_ranks_over_the_others():
    found = one(at(1, 100.0), at(2, 50.0), at(4, 40.0))
    assert [row.speedup for row in found.rows] == pytest.approx([1.0, 2.0, 2.5])
    assert [row.efficiency for row in found.rows] == pytest.approx([1.0, 1.0, 0.625])
    assert [row.gain for row in found.rows] == [None, pytest.approx(1.0), pytest.approx(0.25)]
    assert found.pays_to == 2
    assert found.sentence == (
        "conv: it pays to 2 ranks: from 2 to 4 ranks, an added rank brings 25 % of what one of the "
        "first does, less than 50 %."
    )


def test_weak_scaling_is_as_long_on_any_ranks_where_it_is_perfect():
    found = one(at(2, 10.0, work="weak"), at(4, 10.0, work="weak"), at(8, 12.5, work="weak"))
    assert [row.efficiency for row in found.rows] == pytest.approx([1.0, 1.0, 0.8])
    assert [row.speedup for row in found.rows] == pytest.approx([1.0, 2.0, 3.2])
    assert found.pays_to == 8
    assert found.sentence.endswith("pays to the most ranks that were tried, 8.")


def test_a_throughput_is_compared_as_it_is():
    found = one(
        *(at(np, rate, throughput="rate", work="weak") for np, rate in [(1, 5.0), (2, 9.0)])
    )
    assert [row.efficiency for row in found.rows] == pytest.approx([1.0, 0.9])


def test_it_pays_unless_the_most_that_an_added_rank_can_bring_is_too_little():
    first = at(1, *[100.0] * 4)
    unsure = one(first, at(2, 90.0, 80.0, 70.0, 55.0))
    assert unsure.rows[1].gain < 0.5 < unsure.rows[1].most_gain
    assert unsure.pays_to == 2
    sure = one(first, at(2, 90.0, 91.0, 89.0, 88.0))
    assert sure.pays_to == 1
    assert "(at most 14 %)" in sure.sentence
    assert one(first, at(2, 90.0, 91.0, 89.0, 88.0), worth=0.1).pays_to == 2


def test_intervals_need_four_launches():
    few = one(at(1, 9.0), at(2, 5.0))
    many = one(at(1, *[9.0] * 4), at(2, *[4.5] * 4))
    assert few.rows[1].interval is None
    assert many.rows[1].interval == pytest.approx((1.0, 1.0))
    assert scaling_remarks([few])[-1] == (
        "Intervals need 4 launches of each, as by --set repeat=4."
    )
    assert len(scaling_remarks([many])) == 1


def test_the_limit_is_that_of_the_case_and_of_its_schedule():
    def limited(value):
        return {"limits": {"rate": LimitPart(value=value, unit="1/s", measured_by="one process")}}

    first = at(1, 10.0, throughput="rate", **limited(10.0))
    bubble = {"ideal_bubble": figure(0.2, "1", "none")}
    second = at(2, 14.0, throughput="rate", more=bubble, **limited(20.0))
    assert [row.limit for row in one(first, second).rows] == pytest.approx([1.0, 0.8])


def test_the_limit_of_a_time_may_be_that_of_one_rank_with_all_the_work():
    found = one(at(1, 10.0), at(2, 6.0, more={"sequential_ms": 9.0}))
    assert found.rows[1].limit == pytest.approx(10.0 / 4.5 / 2)
    assert found.rows[0].limit is None


def test_a_case_that_failed_has_a_row_with_its_reason_and_the_others_are_compared():
    broken = at(2, 1.0, status="failed", reason="rank 1: wrong halo")
    found = one(at(1, 8.0), broken, at(4, 2.0))
    assert found.rows[1].note == "rank 1: wrong halo"
    assert found.rows[1].speedup is None
    assert found.rows[2].gain == pytest.approx(1.0)
    alone = one(at(1, 8.0), broken)
    assert alone.pays_to is None
    assert "fewer than two" in alone.sentence


def test_cases_without_the_key_are_none():
    assert compute_scalings(run(case("a"), case("b"))) == []


def test_reports_have_the_table_and_the_sentences():
    recorded = run(at(1, 100.0), at(2, 50.0), at(4, 40.0))
    found = compute_scalings(recorded)
    assert list(scaling_rows(found))[2][2:9] == ("4", "40.0 ms", "2.50x", "62 %", "", "", "25 %")
    told = render_markdown(recorded)
    assert "| `conv` | strong | 4 | 40.0 ms | 2.50x | 62 % |" in told
    assert "conv: it pays to 2 ranks" in told
    page = render_page(recorded)
    assert "Efficiency over ranks" in page
    assert "it pays to 2 ranks" in page
    assert "Scaling" not in render_page(run(case("a")))
    (row,) = scaling_objects(found)
    assert row["pays_to"] == 2
    assert row["rows"][1]["efficiency"] == pytest.approx(1.0)
