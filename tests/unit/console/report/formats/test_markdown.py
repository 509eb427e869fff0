"""The Markdown summary of a run."""

import pytest

from spbench.report.formats.markdown import render_markdown
from spbench.report.model import ExpectationPart, LimitPart
from support.sample_runs import make_case, make_metric, make_run


def test_summary_starts_with_the_verdict_and_reasons(messages):
    text = render_markdown(
        make_run(
            make_case("a", limits={"time_ms": LimitPart(value=1.5, unit="ms", measured_by="copy")}),
            make_case("b[n=1]", {}, status="failed", reason="halo: rank 1 differs"),
            status="failed",
        )
    )
    lines = text.splitlines()
    messages.check(lines[0])
    messages.check(lines[2])
    assert "- **failed** `b[n=1]`: halo: rank 1 differs" in lines
    header_index = lines.index("| case | verdict | time | p95 | n | reference | efficiency |")
    messages.check(lines[header_index + 2])
    messages.check(lines[header_index + 3])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<img src=x>", "`<img src=x>`"),
        ("a`b", "`` a`b ``"),
        ("a|b", "a\\|b"),
        ("a\\|<b>", "a\\\\\\|\\<b\\>"),
        ("two\nlines", "`two lines`"),
    ],
)
def test_hostile_names_are_escaped(name, shown):
    assert f"| {shown} | ✓ passed |" in render_markdown(make_run(make_case(name)))


def test_reasons_are_escaped():
    text = render_markdown(
        make_run(make_case("a", {}, status="error", reason="*x* <b> [y](z) _w_"))
    )
    assert "- **error** `a`: \\*x\\* \\<b\\> \\[y\\](z) \\_w\\_" in text


def test_long_summary_is_cut_below_the_limit_of_github():
    lost = [make_case(f"lost[{n}]", {}, status="error", reason="x" * 90) for n in range(200)]
    fine = [make_case(f"fine[{n}]", {"time_ms": make_metric(1.0)}) for n in range(300)]
    text = render_markdown(make_run(*fine, *lost), max_bytes=20_000)
    assert len(text.encode()) < 20_000
    assert text.count("left out here for their length") == 3
    assert text.count("- **error**") + int(text.split("... and ")[1].split()[0]) == 200


def test_counts_expectations_that_were_not_judged():
    skipped = ExpectationPart(
        metric="time_ms", op="max", limit=None, value=1.0, status="skipped", reason="b is left out"
    )
    assert "1 passed, 2 expectations not judged: run" in render_markdown(
        make_run(make_case("a", expectations=[skipped, skipped]))
    )
