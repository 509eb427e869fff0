"""The formats of reports by name: built-in formats, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from spbench.errors import FailedRunError, SpbenchError, UsageError, did_you_mean
from spbench.report.comparison.model import RunComparison
from spbench.report.export import export_text
from spbench.report.formats.annotations import render_annotations
from spbench.report.formats.grafana import render_dashboard
from spbench.report.formats.junit import render_junit
from spbench.report.formats.lines import render_json_lines, render_syslog
from spbench.report.formats.markdown import render_markdown
from spbench.report.formats.openmetrics import render_openmetrics
from spbench.report.formats.page.document import render_page
from spbench.report.formats.trace.events import render_trace
from spbench.report.recorded import RecordedRun
from spbench_core.plugins import PluginObject, guard_function, load_named_plugin_objects

FORMATS: Mapping[str, Callable[[RecordedRun], str]] = {
    "html": render_page,
    "md": render_markdown,
    "csv": partial(export_text, format_name="csv"),
    "junit": render_junit,
    "openmetrics": render_openmetrics,
    "grafana": render_dashboard,
    "jsonl": render_json_lines,
    "syslog": render_syslog,
    "trace": render_trace,
    "annotations": render_annotations,
}
_ALIASES = {"markdown": "md"}
GROUP = "spbench.reports"
ATTRIBUTE = "report"


def plugin_formats() -> Mapping[str, PluginObject]:
    """Return the formats of plug-ins by name: functions like those in `FORMATS`."""
    return load_named_plugin_objects(GROUP, ATTRIBUTE, (*FORMATS, *_ALIASES), _find_problem)


def _find_problem(plugin_object: PluginObject) -> str | None:
    if callable(plugin_object.object):
        return None
    type_name = type(plugin_object.object).__name__
    return (
        f"format {plugin_object.name}: invalid {ATTRIBUTE} (expected a function, got {type_name})"
    )


def render_report(
    run: RecordedRun, format_name: str, comparison: RunComparison | None = None
) -> str:
    """Return a run in a built-in format or in that of a plug-in.

    Only HTML includes the comparison.

    Raises:
        UsageError: The format is unknown, or the run lacks something that the format needs.
        FailedRunError: A plug-in's format failed.
    """
    name = _ALIASES.get(format_name, format_name)
    if name in FORMATS:
        return render_page(run, comparison) if name == "html" else FORMATS[name](run)
    plugins = plugin_formats()
    if name not in plugins:
        names = (*FORMATS, *plugins)
        hint = did_you_mean(format_name, names)
        raise UsageError(f"there is no format {format_name!r}{hint}; there are {', '.join(names)}")
    plugin_object = plugins[name]
    title = f"format {name}"
    write = guard_function(
        plugin_object.object, plugin_object.plugin, title, FailedRunError, (SpbenchError,), str
    )
    text: str = write(run)
    return text
