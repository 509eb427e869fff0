"""The page of a run: its sections, and escaping of names."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from benchmarks.synthetic_run import write_cases

from spbench.record.number_formatting import replace_controls
from spbench.record.runs.folder import RunFolder
from spbench.report.comparison.compare import compare
from spbench.report.formats.page.document import render_page
from spbench.report.formats.page.markup import Markup, tag
from spbench.report.model import LimitPart, RankPart, TimePart
from spbench.report.recorded import load_run
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

VOID = {"meta", "link", "br", "wbr"}
LOADS = {"src", "srcset", "data", "poster", "action", "background", "cite", "manifest"}
TIMES = TimePart(n=3, min=1.0, p50=2.0, p95=3.0, p99=3.0, max=3.0, mean=2.0)


class Elements(HTMLParser):
    """The elements of a page in order, and its texts; all elements must be closed."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.texts = []
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self._open.pop() == name

    def handle_data(self, data):
        self.texts.append(data)

    def select_attributes(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]


def rank(number, host="node01", time=TIMES):
    fields = {"local_rank": number, "device": "cpu", "status": "ok"}
    return RankPart(rank=number, host=host, time_ms=time, **fields)


FAILED_CHECK = make_failed_check("at (3, 7)")
LIMIT = LimitPart(value=1.5, unit="ms", measured_by="rank 0 alone")
SWEPT_CASES = [
    make_case(
        f"a[n={n}]",
        {"time_ms": make_metric(float(n))},
        params={"n": n},
        samples={"time_ms": [[n * 1.0, n * 1.1, n * 1.3]]},
        limits={"time_ms": LIMIT},
        ranks=[rank(0), rank(1)],
    )
    for n in (1, 10, 100)
]
FAILED_CASE = make_case(
    "b", {}, status="failed", reason="halo: rank 1 differs", checks=[FAILED_CHECK]
)
LINKS_CASE = make_case(
    "links",
    benchmark="link.pingpong",
    measurements=[
        {"name": "latency_us", "value": 9.0 if {a, b} == {0, 3} else 1.0, "rank": a}
        | {"source": a, "target": b, "bytes": size, "host_a": "h", "host_b": "h"}
        for a in range(4)
        for b in range(4)
        if a != b
        for size in (8, 4096)
    ],
)
PREDICTED_CASE = make_case("ring", {"time_ms": 2.0, "predicted_ms": 1.0})
COMPLETE_RUN = make_run(*SWEPT_CASES, FAILED_CASE, LINKS_CASE, PREDICTED_CASE, status="failed")


def test_repeated_case_shows_its_number_of_launches():
    times = {"started": "2026-11-28T10:00:00Z", "finished": "2026-11-28T10:00:12.5Z"}
    single = make_case("single", **times)
    repeated = make_case("repeated", launches=[1, 3, 5], **times)
    text = " ".join(Elements(render_page(make_run(single, repeated))).texts)
    assert "made.up, 2 ranks, 12 s" in text
    assert "made.up, 2 ranks, 3 launches within 12 s" in text


def test_page_has_its_sections_after_the_verdict():
    page = Elements(render_page(COMPLETE_RUN))
    headings = re.findall(r'<section id="(\w+)">', render_page(COMPLETE_RUN))
    assert headings == ["cases", "sweeps", "links", "predictions", "details", "provenance"]
    text = " ".join(page.texts).partition(".share i")[2]
    assert text.index("✗ failed") < text.index("made-up") < text.index("5 passed, 1 failed")
    assert "halo: rank 1 differs" in text
    assert "at (3, 7)" in text
    assert "Slow: ranks 0 and 3 9.00x" in text
    assert "dashed: the reference, measured in the same job" in text
    assert "-50 %" in text


def test_failed_case_comes_first_with_a_link_to_its_details():
    page = render_page(COMPLETE_RUN)
    first = re.search(r"<tbody><tr>(.*?)</tr>", page, re.DOTALL)[1]
    assert '<span class="verdict failed">✗ failed</span>' in first
    anchor = re.search(r'href="#(\w+)">b</a>', first)[1]
    assert f'class="tile" id="{anchor}"' in page


def test_every_link_has_its_anchor():
    page = Elements(render_page(COMPLETE_RUN))
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = {attributes["href"] for attributes in page.select_attributes("a")}
    assert links
    assert {anchor.removeprefix("#") for anchor in links} <= ids


def test_page_loads_nothing():
    text = render_page(COMPLETE_RUN)
    page = Elements(text)
    names = {name for name, _ in page.elements}
    assert not names & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "use",
        "image",
    }
    for name, attributes in page.elements:
        assert not LOADS & (attributes.keys() - ({"data"} if name == "path" else set()))
        assert all(not key.startswith("on") for key in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [meta["content"] for meta in page.select_attributes("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '"><img src=http://example.org/x onerror=alert(1)>',
        "' onload='alert(1)",
        "</style><b>",
        "&lt;\x1b[2J\x00\ud800",
    ],
)
def test_hostile_names_are_escaped(hostile):
    lost = make_case(
        f"{hostile}[n=1]",
        {"time_ms": make_metric(1.0), hostile: make_metric(2.0, hostile)},
        benchmark=hostile,
        status="failed",
        reason=hostile,
        traceback=hostile,
        checks=[FAILED_CHECK.model_copy(update={"name": hostile, "detail": hostile})],
        samples={"time_ms": [[1.0, 2.0]]},
        limits={hostile: LIMIT},
        ranks=[rank(0, hostile), rank(1, hostile)],
        measurements=[
            {"name": hostile, "value": 1.0, "rank": 0, "source": a, "target": b, hostile: hostile}
            | {"host_a": hostile, "host_b": hostile}
            for a, b in ((0, 1), (1, 2), (0, 2))
        ],
    )
    hostile_run = replace(
        make_run(lost, suite=hostile, host=hostile, argv=("run", hostile)),
        findings=(hostile,),
        errors=(hostile,),
        environment={hostile: {hostile: [hostile]}, "env": {hostile: hostile}},
    )
    plain_page = render_page(replace(hostile_run, findings=("x",), errors=("x",)))
    page = Elements(render_page(hostile_run))
    names = {name for name, _ in page.elements}
    assert names == {name for name, _ in Elements(plain_page).elements}
    assert not names & {"script", "img", "b"}
    assert all(not key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert replace_controls(hostile) in " ".join(page.texts)
    assert "\x1b" not in render_page(hostile_run)


def test_escapes_text_but_not_markup():
    inner = tag("b", "<i>", class_='"')
    assert inner == '<b class="&quot;">&lt;i&gt;</b>'
    assert tag("p", inner, "&") == f"<p>{inner}&amp;</p>"
    assert isinstance(inner, Markup)


def test_run_without_results_has_a_page():
    refused = replace(make_run(status="error", started=None, host=None), errors=("no launcher",))
    page = Elements(render_page(refused))
    assert "no launcher" in page.texts
    assert "no cases" in " ".join(page.texts)


def test_comparison_has_its_own_section():
    faster = make_run(make_case("a", {"time_ms": 1.0}), id="20260101-000001-made-up-0001")
    text = render_page(faster, compare(make_run(make_case("a")), faster))
    assert '<section id="comparison">' in text
    assert "a: 20260101-000000-made-up-0000; b: 20260101-000001-made-up-0001" in text
    assert '<span class="not-judged">? not judged</span>' in text
    assert "0 of 1 case judged, 1 not judged." in text
    assert text.count("too few launches") == 1
    verdict = "? not judged against 20260101-000000-made-up-0000"
    assert f'<span class="verdict not-judged">, {verdict}</span>' in text
    assert '<section id="comparison">' not in render_page(faster)


def test_judged_comparison_does_not_change_the_verdict():
    judged = make_run(make_case("a", medians={"time_ms": [1.0, 1.01, 1.02, 1.03, 1.04]}))
    assert "not judged against" not in render_page(judged, compare(judged, judged))


def test_run_that_is_not_slower_is_not_called_unjudged():
    scattered = make_run(make_case("a", medians={"time_ms": [0.7, 1.0, 1.3, 0.8, 1.2]}))
    fast = make_run(make_case("a", medians={"time_ms": [0.7, 0.71, 0.72, 0.73, 0.74]}))
    text = render_page(fast, compare(scattered, fast))
    assert '<span class="not-slower">✓ not slower</span>' in text
    assert "1 of 1 case not slower." in text
    assert "not judged against" not in text


def test_details_stop_at_the_maximum_size():
    lost = make_case("lost", {}, status="error", reason="died")
    many = [make_case(f"fine[n={n}]", params={"n": n}) for n in range(60)]
    text = render_page(make_run(*many, lost), max_bytes=40_000)
    count = text.count('class="tile" id="c')
    assert 0 < count < 60
    assert f"{count} of 61 cases, those first that did not pass" in text
    assert re.search(r'id="c0"><h3><span class="verdict error">', text)
    assert len(set(re.findall(r'href="#(c\d+)"', text))) == count


@pytest.mark.long
@pytest.mark.slow
def test_page_of_1000_cases_is_below_2_mib(tmp_path):
    folder = RunFolder(tmp_path / "made-up")
    write_cases(folder.path, 1000, 4, 20)
    recorded = load_run(folder)
    assert len(recorded.cases) == 1000
    text = render_page(recorded)
    Elements(text)
    assert len(text.encode()) < 2 << 20
    assert text.count("<tr><td><span") >= 1000
