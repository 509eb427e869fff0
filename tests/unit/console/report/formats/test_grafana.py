import json
import re

from spbench.report.formats.grafana import render_dashboard
from spbench.report.formats.openmetrics import render_openmetrics
from unit.results import case, figure, run

RUN = run(
    case("a", {"time_ms": figure(2.0), "bandwidth_gb_s": figure(3.0, "GB/s", "higher")}),
    case("b", {"time_ms": figure(1.0), "skew": figure(1.0, "1")}),
)


def test_each_query_names_a_family_and_labels_that_the_runs_openmetrics_have():
    families = set(re.findall(r"^# TYPE (\S+)", render_openmetrics(RUN), re.MULTILINE))
    labels = set(re.findall(r'[{,](\w+)="', render_openmetrics(RUN)))
    board = json.loads(render_dashboard(RUN))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for query in queries:
        name, told = re.fullmatch(r"(\w+)\{(.*)\}", query).groups()
        assert name in families
        assert set(re.findall(r"(\w+)=", told)) <= labels
    shown = {query.partition("{")[0] for query in queries}
    assert {name for name in families if name.startswith("spbench_case_")} <= shown
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert list(variables) == ["source", "suite", "case", "stat"]
    for one in variables.values():
        for name in re.findall(r"label_values\((\w+)", one["query"]):
            assert name in families


def test_panels_have_units_of_grafana_and_do_not_overlap():
    board = json.loads(render_dashboard(RUN))
    units = {p["title"]: p["fieldConfig"]["defaults"].get("unit") for p in board["panels"]}
    assert units["time seconds"] == "s"
    assert units["bandwidth bytes per second"] == "Bps"
    assert units["skew"] is None
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"]) == len({p["id"] for p in board["panels"]})
