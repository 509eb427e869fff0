"""The page of a run: what stands in it, and that names are data in it."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from benchmarks.made_up_run import write_cases

from spbench.record.number_formatting import strip_controls
from spbench.record.runs.folder import RunFolder
from spbench.report.comparison.compare import compare
from spbench.report.formats.page import document
from spbench.report.formats.page.document import render_page
from spbench.report.formats.page.markup import Markup, tag
from spbench.report.model import LimitPart, RankPart, TimePart
from spbench.report.recorded import load_run
from unit.results import case, figure, run, wrong_check

VOID = {"meta", "link", "br", "wbr"}
LOADS = {"src", "srcset", "data", "poster", "action", "background", "cite", "manifest"}
TIMES = TimePart(n=3, min=1.0, p50=2.0, p95=3.0, p99=3.0, max=3.0, mean=2.0)


class Elements(HTMLParser):
    """The elements of a page in order, and its text; every one is closed where it was opened."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.words = []
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name, attributes):
        self.found.append((name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)

    def handle_startendtag(self, name, attributes):
        self.found.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self._open.pop() == name

    def handle_data(self, data):
        self.words.append(data)

    def of(self, name):
        return [attributes for found, attributes in self.found if found == name]


def rank(number, host="node01", time=TIMES):
    about = {"local_rank": number, "device": "cpu", "status": "ok"}
    return RankPart(rank=number, host=host, time_ms=time, **about)


CHECK = wrong_check("at (3, 7)")
LIMIT = LimitPart(value=1.5, unit="ms", measured_by="rank 0 alone")
SWEPT = [
    case(
        f"a[n={n}]",
        {"time_ms": figure(float(n))},
        params={"n": n},
        samples={"time_ms": [[n * 1.0, n * 1.1, n * 1.3]]},
        limits={"time_ms": LIMIT},
        ranks=[rank(0), rank(1)],
    )
    for n in (1, 10, 100)
]
LOST = case("b", {}, status="failed", reason="halo: rank 1 differs", checks=[CHECK])
LINKS = case(
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
PREDICTED = case("ring", {"time_ms": 2.0, "predicted_ms": 1.0})
WHOLE = run(*SWEPT, LOST, LINKS, PREDICTED, verdict="failed")


def test_launches_of_a_case_are_within_the_time_of_others():
    times = {"started": "2026-11-28T10:00:00Z", "finished": "2026-11-28T10:00:12.5Z"}
    alone = case("alone", **times)
    repeated = case("repeated", launches=[1, 3, 5], **times)
    text = " ".join(Elements(render_page(run(alone, repeated))).words)
    assert "made.up, 2 ranks, 12 s" in text
    assert "made.up, 2 ranks, 3 launches within 12 s" in text


def test_the_page_has_its_parts_with_the_verdict_first():
    page = Elements(render_page(WHOLE))
    headings = re.findall(r'<section id="(\w+)">', render_page(WHOLE))
    assert headings == ["cases", "sweeps", "links", "predictions", "details", "provenance"]
    text = " ".join(page.words).partition(".share i")[2]
    assert text.index("✗ failed") < text.index("made-up") < text.index("5 passed, 1 failed")
    assert "halo: rank 1 differs" in text
    assert "at (3, 7)" in text
    assert "Slow: ranks 0 and 3 9.00x" in text
    assert "dashed: the reference, measured in the same job" in text
    assert "-50 %" in text


def test_what_did_not_pass_stands_first_and_leads_to_its_details():
    page = render_page(WHOLE)
    first = re.search(r"<tbody><tr>(.*?)</tr>", page, re.DOTALL)[1]
    assert '<span class="verdict failed">✗ failed</span>' in first
    anchor = re.search(r'href="#(\w+)">b</a>', first)[1]
    assert f'class="tile" id="{anchor}"' in page


def test_every_anchor_is_there():
    page = Elements(render_page(WHOLE))
    ids = {attributes["id"] for _, attributes in page.found if "id" in attributes}
    led = {attributes["href"] for attributes in page.of("a")}
    assert led
    assert {anchor.removeprefix("#") for anchor in led} <= ids


def test_the_page_asks_nobody_for_anything():
    text = render_page(WHOLE)
    page = Elements(text)
    names = {name for name, _ in page.found}
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
    for name, attributes in page.found:
        assert not LOADS & (attributes.keys() - ({"data"} if name == "path" else set()))
        assert all(not key.startswith("on") for key in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [of["content"] for of in page.of("meta") if "http-equiv" in of]
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
def test_names_are_data(hostile):
    lost = case(
        f"{hostile}[n=1]",
        {"time_ms": figure(1.0), hostile: figure(2.0, hostile)},
        benchmark=hostile,
        status="failed",
        reason=hostile,
        traceback=hostile,
        checks=[CHECK.model_copy(update={"name": hostile, "detail": hostile})],
        samples={"time_ms": [[1.0, 2.0]]},
        limits={hostile: LIMIT},
        ranks=[rank(0, hostile), rank(1, hostile)],
        measurements=[
            {"name": hostile, "value": 1.0, "rank": 0, "source": a, "target": b, hostile: hostile}
            | {"host_a": hostile, "host_b": hostile}
            for a, b in ((0, 1), (1, 2), (0, 2))
        ],
    )
    told = replace(
        run(lost, suite=hostile, host=hostile, argv=("run", hostile)),
        findings=(hostile,),
        errors=(hostile,),
        environment={hostile: {hostile: [hostile]}, "env": {hostile: hostile}},
    )
    plain = render_page(replace(told, findings=("x",), errors=("x",)))
    page = Elements(render_page(told))
    names = {name for name, _ in page.found}
    assert names == {name for name, _ in Elements(plain).found}
    assert not names & {"script", "img", "b"}
    assert all(not key.startswith("on") for _, attributes in page.found for key in attributes)
    assert strip_controls(hostile) in " ".join(page.words)
    assert "\x1b" not in render_page(told)


def test_text_is_escaped_and_markup_is_not():
    inner = tag("b", "<i>", class_='"')
    assert inner == '<b class="&quot;">&lt;i&gt;</b>'
    assert tag("p", inner, "&") == f"<p>{inner}&amp;</p>"
    assert isinstance(inner, Markup)


def test_a_run_without_results_has_a_page():
    refused = replace(run(verdict="error", started=None, host=None), errors=("no launcher",))
    page = Elements(render_page(refused))
    assert "no launcher" in page.words
    assert "no cases" in " ".join(page.words)


def test_a_comparison_is_a_part_of_its_own():
    faster = run(case("a", {"time_ms": 1.0}), id="20260101-000001-made-up-0001")
    told = render_page(faster, compare(run(case("a")), faster))
    assert '<section id="comparison">' in told
    assert "a: 20260101-000000-made-up-0000; b: 20260101-000001-made-up-0001" in told
    assert '<span class="not-judged">? not judged</span>' in told
    assert "0 of 1 case judged, 1 not judged." in told
    assert told.count("too few launches") == 1
    verdict = "? not judged against 20260101-000000-made-up-0000"
    assert f'<span class="verdict not-judged">, {verdict}</span>' in told
    assert '<section id="comparison">' not in render_page(faster)


def test_a_judged_comparison_leaves_the_verdict_alone():
    judged = run(case("a", medians={"time_ms": [1.0, 1.01, 1.02, 1.03, 1.04]}))
    assert "not judged against" not in render_page(judged, compare(judged, judged))


def test_details_end_where_there_is_no_room_for_more(monkeypatch):
    lost = case("lost", {}, status="error", reason="died")
    many = [case(f"fine[n={n}]", params={"n": n}) for n in range(60)]
    monkeypatch.setattr(document, "MOST_BYTES", 40_000)
    told = render_page(run(*many, lost))
    count = told.count('class="tile" id="c')
    assert 0 < count < 60
    assert f"{count} of 61 cases, those first that did not pass" in told
    assert re.search(r'id="c0"><h3><span class="verdict error">', told)
    assert len(set(re.findall(r'href="#(c\d+)"', told))) == count


@pytest.mark.long
@pytest.mark.slow
def test_a_thousand_cases_take_less_than_two_mebibytes(tmp_path):
    folder = RunFolder(tmp_path / "made-up")
    write_cases(folder.path, 1000, 4, 20)
    found = load_run(folder)
    assert len(found.cases) == 1000
    told = render_page(found)
    Elements(told)
    assert len(told.encode()) < 2 << 20
    assert told.count("<tr><td><span") >= 1000
