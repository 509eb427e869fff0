import pytest

from spbench.report.formats import markdown as module
from spbench.report.formats.markdown import render_markdown
from spbench.report.model import ExpectationPart, LimitPart
from unit.results import case, figure, run


def test_a_summary_begins_with_the_verdict_and_why():
    told = render_markdown(
        run(
            case("a", limits={"time_ms": LimitPart(value=1.5, unit="ms", measured_by="copy")}),
            case("b[n=1]", {}, status="failed", reason="halo: rank 1 differs"),
            verdict="failed",
        )
    )
    lines = told.splitlines()
    assert lines[0] == "## ✗ failed: made-up"
    assert lines[2].startswith("1 passed, 1 failed: run `20260101-000000-made-up-0000`, 1970-01-01")
    assert "- **failed** `b[n=1]`: halo: rank 1 differs" in lines
    at = lines.index("| case | verdict | time | p95 | n | reference | efficiency |")
    assert lines[at + 2] == "| `b[n=1]` | ✗ failed |  |  |  |  |  |"
    assert lines[at + 3] == "| `a` | ✓ passed | 2.00 ms | 3.00 ms | 3 | 1.50 ms | 75 % |"


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
def test_names_are_data(name, shown):
    assert f"| {shown} | ✓ passed |" in render_markdown(run(case(name)))


def test_sentences_are_text():
    told = render_markdown(run(case("a", {}, status="error", reason="*x* <b> [y](z) _w_")))
    assert "- **error** `a`: \\*x\\* \\<b\\> \\[y\\](z) \\_w\\_" in told


def test_a_long_run_is_cut_below_githubs_limit_and_says_so(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    lost = [case(f"lost[{n}]", {}, status="error", reason="x" * 90) for n in range(200)]
    fine = [case(f"fine[{n}]", {"time_ms": figure(1.0)}) for n in range(300)]
    told = render_markdown(run(*fine, *lost))
    assert len(told.encode()) < 20_000
    assert told.count("left out here for their length") == 3
    assert told.count("- **error**") + int(told.split("... and ")[1].split()[0]) == 200


def test_expectations_that_were_left_open_are_counted():
    open_ = ExpectationPart(
        metric="time_ms", op="max", limit=None, value=1.0, status="skipped", reason="b is left out"
    )
    assert "1 passed, 2 expectations not judged: run" in render_markdown(
        run(case("a", expectations=[open_, open_]))
    )
