"""Numbers in pages and Markdown have units, no exponents and named references."""

import re
from html import unescape

import pytest

from spbench.report.export import export_text
from spbench.report.formats.markdown import render_markdown
from spbench.report.formats.page.document import render_page
from spbench.report.model import LaunchPart, LimitPart
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

EXPONENT = re.compile(r"\d[eE][+-]?\d")
AMOUNT = re.compile(r"~?(<0\.1|[\d,]+(\.\d+)?) (ps|ns|us|ms|s|min|h|%)")
CROWDED = LaunchPart(
    launcher="openmpi",
    version="5.0",
    argv=["mpirun"],
    hostfile=None,
    env={},
    job=1,
    oversubscribed=True,
)


def case_with_time(value, **changes):
    return make_case(
        "a",
        {
            "time_ms": make_metric(value),
            "exchange_ms": make_metric(value),
            "loss": make_metric(value, "1"),
        },
        benchmark="halo.compute",
        limits={"time_ms": LimitPart(value=1.5 * value, unit="ms", measured_by="copy")},
        checks=[make_failed_check("at 3").model_copy(update={"max_abs_error": 3.73e-9})],
        samples={"time_ms": [[value, 1.1 * value, 1.2 * value]]},
        **changes,
    )


def table_cells(part):
    row = next(
        line for line in render_markdown(make_run(part)).splitlines() if line.startswith("| `a`")
    )
    return row.strip("| ").split(" | ")


def page_text(part):
    body = render_page(make_run(part)).partition("<body>")[2]
    return unescape(re.sub(r"<[^>]*>", " ", body))


@pytest.mark.parametrize("value", [1e-9, 3.3e-7, 0.0123, 1.5, 999.7, 4.2e6, 1e12])
def test_each_number_has_a_unit_and_no_exponent(value):
    _, _, time, p95, _, reference, efficiency = table_cells(case_with_time(value))
    for cell in (time, p95, reference, efficiency):
        assert AMOUNT.fullmatch(cell), cell
    assert efficiency == "150 %"
    for text in (
        render_markdown(make_run(case_with_time(value))),
        page_text(case_with_time(value)),
    ):
        assert not EXPONENT.search(text.replace("3.73e-9", ""))  # only of a small error
        assert "limit" not in text
        assert "measured separately" in text


def test_small_error_of_a_check_has_an_exponent():
    assert " 3.73e-9 " in page_text(case_with_time(1.0))


def test_legend_explains_names_and_signs_once():
    for text in (render_markdown(make_run(case_with_time(1.0))), page_text(case_with_time(1.0))):
        for start in (
            "time: ",
            "reference: ",
            "efficiency: reference / time; above 100 %: ",
            "≈: ",
        ):
            assert text.count(start) == 1


@pytest.mark.parametrize(("launch", "sign"), [(CROWDED, "~"), (None, "")])
def test_marks_relative_metrics_of_disturbed_cases(launch, sign):
    metrics = {
        "exchange_efficiency": make_metric(0.46, "1", "higher"),
        "speedup": make_metric(3.0, "1", "higher"),
        "exchange_ms": make_metric(2.0),
    }
    part = make_case("a", metrics, launch=launch)
    exported = export_text(make_run(part), "md").replace("\\", "")
    for cell in (f"{sign}46 %", f"{sign}3.00x", "2.00 ms"):
        assert f'<td class="n">{cell}</td>' in render_page(make_run(part))
        assert f"| {cell} |" in exported
    assert table_cells(part)[2].replace("\\", "") == f"exchange efficiency {sign}46 %"


def test_captions_have_readable_metric_names():
    samples = {"bandwidth_gb_s": [[0.1, 0.2, 0.3]]}
    part = make_case("a", {"bandwidth_gb_s": make_metric(0.2, "GB/s", "higher")}, samples=samples)
    page = render_page(make_run(part))
    assert "bandwidth of all ranks, each of 3 iterations" in page
    assert "bandwidth_gb_s" not in page


def test_marks_efficiencies_of_oversubscribed_cases():
    assert table_cells(case_with_time(1.0, launch=CROWDED))[-1].replace("\\", "") == "~150 %"
    assert '<span class="soft">~150 %</span>' in render_page(
        make_run(case_with_time(1.0, launch=CROWDED))
    )
