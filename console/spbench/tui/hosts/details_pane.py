"""The facts about one host: its load now, its parts, and the last runs from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from spbench.launch.survey.facts import HostFacts
from spbench.record.machine.host_loads import LoadHistory
from spbench.record.number_formatting import (
    format_duration,
    format_number,
    format_percent,
    format_rate,
    replace_line_controls,
)
from spbench.record.runs.folder import list_runs
from spbench.record.runs.history import RunSummary, read_summary
from spbench.report.run_details import Fact
from spbench.report.times import format_day_and_time
from spbench.tui.hosts.layout import NotedPane
from spbench.tui.hosts.machine_monitor import Interface, MachineLoad, MachineMonitor
from spbench.tui.widgets.glyphs import render_sparkline
from spbench_core.number_text import format_quantity

SPARKLINE_WIDTH = 20
"""Cells of a sparkline, one for each reading."""
_COLUMN_GAP = 2
"""Blanks between labels and texts."""
_MEAN_PERIODS = ("the last minute", "5 min", "15 min")
"""The periods of the means of the load that the kernel reports."""
_UNREAD = "…"
"""The text of a value before its first reading."""
MAX_RUNS = 8
"""The most runs that are listed."""


class DetailsPane(VerticalScroll, NotedPane, can_focus=True):
    """The facts about the host under the cursor."""

    HELP = """\
The host under the cursor. The load of this machine is read every few seconds while the page is
shown. Another host is only asked for its load if you press r (all hosts) or R (one host). Below are
its parts as it answered, and the last runs that were started on it."""
    DEFAULT_CSS = """
    DetailsPane { scrollbar-size-vertical: 1; }
    DetailsPane Static { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__(classes="pane", id="details")
        self.set_title("Host")

    def compose(self) -> ComposeResult:
        yield Static("")

    def show(
        self,
        host: str | None,
        facts: HostFacts | None,
        monitor: MachineMonitor | None,
        runs: Sequence[RunSummary],
    ) -> None:
        """Show a host.

        Args:
            host: The host under the cursor.
            facts: The facts about it; None if it was not queried.
            monitor: The readings if the host is this machine.
            runs: The last runs from it, newest first.
        """
        title = f"Host {host or ''}".rstrip()
        self.set_title(title)
        facts_by_label = [
            *(list_load_facts(monitor.load) if monitor is not None else ()),
            *(list_parts(facts, monitor) if facts is not None else ()),
            *_list_runs(runs),
        ]
        if monitor is None and facts is not None:
            facts_by_label.insert(0, Fact("load", _describe_asked_load(facts)))
        if host is None:
            facts_by_label = [Fact("", "no host is chosen")]
        elif facts is None and monitor is None:
            facts_by_label = [Fact("", "not asked yet: r asks all hosts, R asks this one")]
        width = self.scrollable_content_region.width
        self.query_one(Static).update(_build_table(facts_by_label, width))


def read_last_runs(home: Path) -> list[RunSummary]:
    """Return the last runs, the newest first."""
    return [read_summary(folder) for folder in reversed(list_runs(home)[-4 * MAX_RUNS :])]


def break_paths(text: str, width: int) -> str:
    """Return a text with blanks after slashes of words that are wider than ``width``."""
    return " ".join(_break_path(word, width) for word in text.split(" "))


def _break_path(word: str, width: int) -> str:
    if len(word) <= width or "/" not in word[:width]:
        return word
    end = word.rindex("/", 0, width) + 1
    return f"{word[:end]} {_break_path(word[end:], width)}"


def _build_table(facts: Sequence[Fact], width: int) -> Table:
    text_width = width - max((len(fact.label) for fact in facts), default=0) - _COLUMN_GAP
    table = Table.grid(padding=(0, _COLUMN_GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for fact in facts:
        text = break_paths(replace_line_controls(fact.text), max(1, text_width))
        table.add_row(Text(fact.label, "bold"), Text(text))
    return table


def list_load_facts(load: MachineLoad) -> Iterator[Fact]:
    """Yield the load of this machine: cores, memory and network.

    Each fact has its row before the first readings, so that the rows below do not move.
    """
    yield Fact("cores busy", f"{_describe_share(load.cpu)} now" if load.cpu.last else _UNREAD)
    load_text = _UNREAD
    if load.load_means:
        means = zip(load.load_means, _MEAN_PERIODS, strict=False)
        texts = (f"{format_number(mean)} in {period}" for mean, period in means)
        load_text = ", ".join(texts)
    yield Fact("load", load_text)
    memory_text = _UNREAD
    if load.memory.last:
        available_gib = (load.available_bytes or 0) / 2**30
        sizes = f"{format_number(available_gib)} of {format_number(load.total_bytes / 2**30)} GiB"
        memory_text = f"{_describe_share(load.memory)}, {sizes} available"
    yield Fact("memory used", memory_text)
    for label, history in (("received", load.received_rates), ("sent", load.sent_rates)):
        yield Fact(label, _describe_rate(history) if history.last else _UNREAD)


def _describe_share(history: LoadHistory) -> str:
    return f"{_render_bars(history, 1.0)} {format_percent(history.last[-1])}"


def _describe_rate(history: LoadHistory) -> str:
    return f"{_render_bars(history, history.maximum)} {format_rate(history.last[-1] / 1e9)}"


def _render_bars(history: LoadHistory, maximum: float) -> str:
    """Return a sparkline that is as wide as there are readings."""
    return render_sparkline(history.last, min(SPARKLINE_WIDTH, len(history.last)), maximum)


def _describe_asked_load(facts: HostFacts) -> str:
    if facts.load is None:
        return "not reported"
    return f"{format_number(facts.load)} when it was asked; r or R asks again"


def list_parts(facts: HostFacts, monitor: MachineMonitor | None) -> Iterator[Fact]:
    """Yield the parts of a host: cores, memory, GPUs, adapters, software and limits."""
    if facts.cores is not None:
        parts = [format_quantity(facts.cores, "core")]
        if monitor is not None:
            parts += [monitor.processor] if monitor.processor else []
            parts += [f"{monitor.mhz:.0f} MHz now"] if monitor.mhz else []
        parts += [f"governor {facts.governor}"] if facts.governor else []
        yield Fact("processor", ", ".join(parts))
    if facts.memory_gib is not None and facts.free_gib is not None and monitor is None:
        total = format_number(facts.memory_gib)
        yield Fact("memory", f"{format_number(facts.free_gib)} of {total} GiB available")
    if facts.cores is not None:
        yield Fact("GPUs", _describe_gpus(facts))
    if facts.adapters:
        ports = (f"{port.name}:{port.port} {port.state} {port.rate}" for port in facts.adapters)
        yield Fact("adapters", ", ".join(ports))
    if monitor is not None and monitor.interfaces:
        yield Fact("interfaces", describe_interfaces(monitor.interfaces))
    mpi_texts = [text for text in (facts.mpi, facts.mpi4py and f"mpi4py {facts.mpi4py}") if text]
    if mpi_texts:
        yield Fact("MPI", ", ".join(mpi_texts))
    if facts.torch:
        cuda = f"CUDA {facts.torch_cuda}" if facts.torch_cuda else "without CUDA"
        yield Fact("torch", f"{facts.torch}, {cuda}")
    if facts.python:
        interpreter = f" ({facts.interpreter})" if facts.interpreter else ""
        yield Fact("Python", f"{facts.python}{interpreter}")
    yield from _list_limits(facts)
    if facts.clock_s is not None and monitor is None:
        yield Fact("clock", f"{facts.clock_s:+.1f} s compared with this machine")


def _describe_gpus(facts: HostFacts) -> str:
    if not facts.gpus.any_present:
        return "none"
    versions = [f"driver {facts.gpus.driver}"] if facts.gpus.driver else []
    versions += [f"CUDA {facts.gpus.cuda}"] if facts.gpus.cuda else []
    return ", ".join([facts.gpus.models, *versions])


def describe_interfaces(interfaces: Sequence[Interface]) -> str:
    """Return the physical interfaces and the number of others, or else all."""
    physical = [interface for interface in interfaces if not interface.is_virtual]
    num_virtual = len(interfaces) - len(physical)
    text = ", ".join(map(_describe_interface, physical or interfaces))
    return f"{text}, and {num_virtual} virtual" if physical and num_virtual else text


def _describe_interface(interface: Interface) -> str:
    speed = f" {interface.mbit_per_s / 1000:g} Gbit/s" if interface.mbit_per_s else ""
    return f"{interface.name} {interface.state}{speed}"


def _list_limits(facts: HostFacts) -> Iterator[Fact]:
    limits = [f"{facts.nofile:,} open files"] if facts.nofile else []
    limits += [f"locked memory {facts.memlock}"] if facts.memlock else []
    if limits:
        yield Fact("limits", ", ".join(limits))
    if facts.filesystem:
        yield Fact("folder", f"on {facts.filesystem}")


def _list_runs(runs: Sequence[RunSummary]) -> Iterator[Fact]:
    for index, run in enumerate(runs[:MAX_RUNS]):
        duration = f", {format_duration(run.duration_s)}" if run.duration_s is not None else ""
        text = f"{format_day_and_time(run.started)} {run.suite}: {run.status_text}{duration}"
        yield Fact("last runs" if index == 0 else "", text)
