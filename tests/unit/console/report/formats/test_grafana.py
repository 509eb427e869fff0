"""Dashboards of Grafana for the metrics of a run."""

import json
import re

from spbench.report.formats.grafana import render_dashboard
from spbench.report.formats.openmetrics import render_openmetrics
from support.sample_runs import make_case, make_metric, make_run

RUN = make_run(
    make_case(
        "a", {"time_ms": make_metric(2.0), "bandwidth_gb_s": make_metric(3.0, "GB/s", "higher")}
    ),
    make_case("b", {"time_ms": make_metric(1.0), "skew": make_metric(1.0, "1")}),
)


def test_queries_use_families_and_labels_of_openmetrics():
    families = set(re.findall(r"^# TYPE (\S+)", render_openmetrics(RUN), re.MULTILINE))
    labels = set(re.findall(r'[{,](\w+)="', render_openmetrics(RUN)))
    dashboard = json.loads(render_dashboard(RUN))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for query in queries:
        name, matchers = re.fullmatch(r"(\w+)\{(.*)\}", query).groups()
        assert name in families
        assert set(re.findall(r"(\w+)=", matchers)) <= labels
    shown = {query.partition("{")[0] for query in queries}
    assert {name for name in families if name.startswith("spbench_case_")} <= shown
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert list(variables) == ["source", "suite", "case", "stat"]
    for variable in variables.values():
        for name in re.findall(r"label_values\((\w+)", variable["query"]):
            assert name in families


def test_panels_have_grafana_units_and_do_not_overlap():
    dashboard = json.loads(render_dashboard(RUN))
    units = {
        panel["title"]: panel["fieldConfig"]["defaults"].get("unit")
        for panel in dashboard["panels"]
    }
    assert units["time seconds"] == "s"
    assert units["bandwidth bytes per second"] == "Bps"
    assert units["skew"] is None
    positions = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert (
        len(positions)
        == len(dashboard["panels"])
        == len({panel["id"] for panel in dashboard["panels"]})
    )
