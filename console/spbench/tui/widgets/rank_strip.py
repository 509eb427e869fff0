"""A strip of many ranks: a cell for each rank or for several, darker if slower."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.events import MouseMove
from textual.geometry import Offset
from textual.message import Message

from spbench.record.comparison import NOTABLE_RANK, name_typical_rank
from spbench.record.messages.slowness import describe_brief_ratio, describe_ratio
from spbench.report.scale import drop_infinite
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.glyphs import (
    cap_brief_slowness,
    choose_slowness_mark,
    render_slowness_legend,
)
from spbench.tui.widgets.keys import make_binding
from spbench.tui.widgets.text import cell_width, join_fitting, wrap_words
from spbench_core.number_text import format_quantity

MAX_TEXT_LINES = 2
"""Most lines of the text below the cells, unless there are free rows below the ranks."""
FEW_RANKS = 8
"""Most ranks without cells: the table below the strip shows all of them at a glance."""
_LEGEND_GAP = 3
_WHOLE_LEGEND = 200
"""A width in which nothing of the legend is left out."""
_MAX_COLUMNS_PER_CELL = 3
"""Terminal columns of a cell if there are few ranks."""


@dataclass(frozen=True, slots=True)
class CellLayout:
    """The layout of ranks in cells; a column is a column of the terminal."""

    ranks: int
    ranks_per_cell: int
    columns_per_cell: int
    cells_per_line: int

    @property
    def count(self) -> int:
        """The number of cells."""
        return -(-self.ranks // self.ranks_per_cell)

    def list_ranks_in_cell(self, cell: int) -> range:
        """Return the ranks of a cell."""
        return range(cell * self.ranks_per_cell, min((cell + 1) * self.ranks_per_cell, self.ranks))


def lay_out_ranks(ranks: int, width: int, lines: int) -> CellLayout:
    """Return a layout of all ranks in ``lines`` lines, with wide cells for few ranks."""
    width = max(1, width)
    lines = max(1, lines)
    ranks_per_cell = max(1, -(-ranks // (width * lines)))
    columns_per_cell = max(
        1, min(_MAX_COLUMNS_PER_CELL, width // max(1, -(-ranks // ranks_per_cell)))
    )
    return CellLayout(ranks, ranks_per_cell, columns_per_cell, width // columns_per_cell)


class RankStrip(Chart):
    """The ranks in order, and a text on them; few ranks have only the text.

    A cell of several ranks shows the worst of them: a failed rank, or else the slowest.

    Attributes:
        max_text_lines: Most lines of the text.
    """

    HELP: ClassVar[str] = (
        "All ranks in order: ░ near the median, ▒ and ▓ slower, █ far slower, ✗ failed,\n"
        "· not compared, ◆ chosen. With many ranks a cell shows the worst of several.\n"
        "Arrows, home, end or a click choose a rank; the last line describes it."
    )
    HEIGHT: ClassVar[int] = 2
    CAN_CLEAR_CURSOR: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        make_binding("ranks.up", "up", "line(-1)", "Up", "The line above"),
        make_binding("ranks.down", "down", "line(1)", "Down", "The line below"),
        make_binding("ranks.choose", "enter", "choose", "Choose", "This rank"),
    ]

    class RankSelected(Message):
        """The user selected a rank."""

        def __init__(self, strip: RankStrip, rank: int) -> None:
            super().__init__()
            self.strip = strip
            self.rank = rank

        @property
        def control(self) -> RankStrip:
            """The strip."""
            return self.strip

    max_text_lines = MAX_TEXT_LINES
    _ratios: Sequence[float | None] = ()
    _failed: Container[int] = ()
    _slow: Container[int] | None = None
    _selected: int | None = None
    _note = ""
    _failed_text = ""

    def update(
        self,
        ratios: Sequence[float | None],
        failed: Container[int],
        selected: int | None,
        note: str = "",
        slow: Container[int] | None = None,
    ) -> None:
        """Show the ranks as they are now.

        Args:
            ratios: By rank: its time over the time of the typical rank; None if unknown.
            failed: The ranks that failed.
            selected: The rank that is selected on the page; the cursor follows it.
            note: A message on slow ranks, shown while no rank is selected.
            slow: The ranks that are slow by the rules for findings. Default: those with a notable
                ratio.
        """
        self._ratios = [drop_infinite(ratio) for ratio in ratios]
        self._failed = failed
        self._failed_text = self._summarize_failed()
        self._selected = selected
        self._note = note
        self._slow = slow
        self.can_focus = self.has_cells
        self._move_to_selected(self._lay_out())
        self.redraw()

    @property
    def has_cells(self) -> bool:
        """Whether each rank has a cell, or shares one with others."""
        return len(self._ratios) > FEW_RANKS

    def count_stops(self) -> int:
        """Return the number of cells."""
        return self._lay_out().count if self.has_cells else 0

    def find_stop(self, offset: Offset) -> int | None:
        """Return the cell under the pointer."""
        layout = self._lay_out()
        column = offset.x // layout.columns_per_cell
        stop = offset.y * layout.cells_per_line + column
        return stop if column < layout.cells_per_line and 0 <= stop < layout.count else None

    def handle_cursor_move(self) -> None:
        """Select the worst rank of the cell."""
        if self.cursor is not None:
            self._selected = self._find_worst(self._lay_out().list_ranks_in_cell(self.cursor))
            self.action_choose()

    def action_choose(self) -> None:
        """Select the rank that is described at the cursor."""
        if self._selected is not None:
            self.redraw()
            self.post_message(self.RankSelected(self, self._selected))

    def action_line(self, lines: int) -> None:
        """Move the cursor by a number of lines, if there are as many."""
        layout = self._lay_out()
        stop = (self.cursor or 0) + lines * layout.cells_per_line
        if 0 <= stop < layout.count:
            self.move_to(stop)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Describe the cell under the pointer in the tooltip."""
        offset = event.get_content_offset(self)
        stop = None if offset is None else self.find_stop(offset)
        ranks = None if stop is None else self._lay_out().list_ranks_in_cell(stop)
        self.tooltip = None if ranks is None else self._describe(ranks)

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return the lines of cells, and a summary line below them if there is space."""
        if not self._ratios:
            return [[(join_fitting(["no ranks"], width), "none")]]
        if not self.has_cells:
            return [[(line, "text")] for line in wrap_words(self._summarize(), width, height)]
        layout = self._lay_out()
        self._move_to_selected(layout)
        stops = range(layout.count)
        cells_per_line = layout.cells_per_line
        lines = [
            [self._render_cell(stop, layout) for stop in stops[start : start + cells_per_line]]
            for start in range(0, len(stops), cells_per_line)
        ]
        if height > 1:
            text_lines = wrap_words(self._summarize(), width, self._count_text_lines())
            lines += [[(line, "text")] for line in text_lines]
        self._add_legend(lines, width)
        return lines

    def _add_legend(self, lines: list[list[Piece]], width: int) -> None:
        """Add the meaning of the glyphs to the first line with space for all of it."""
        legend = render_slowness_legend(_WHOLE_LEGEND, ascii=self.ascii)
        needed_width = _LEGEND_GAP + _measure_pieces(legend)
        for line in lines:
            if _measure_pieces(line) + needed_width <= width:
                line += [(" " * _LEGEND_GAP, "text"), *legend]
                return

    def measure_text_lines(self, width: int) -> int:
        """Return the number of lines that the message on all ranks needs."""
        return len(wrap_words(self._summarize_all(), width, self.max_text_lines))

    def _count_text_lines(self) -> int:
        """Return the number of lines for text; at least one line is for the cells."""
        return max(1, min(self.measure_text_lines(self.size.width), self.size.height - 1))

    def _lay_out(self) -> CellLayout:
        """Return the layout for the current size; the last lines are for the text."""
        lines = self.size.height - self._count_text_lines()
        return lay_out_ranks(len(self._ratios), self.size.width, lines)

    def _move_to_selected(self, layout: CellLayout) -> None:
        """Move the cursor to the cell of the selected rank; None if there is none."""
        self.cursor = None
        if self.has_cells and self._selected is not None and 0 <= self._selected < layout.ranks:
            self.cursor = self._selected // layout.ranks_per_cell

    def _render_cell(self, stop: int, layout: CellLayout) -> Piece:
        worst = self._find_worst(layout.list_ranks_in_cell(stop))
        ratio = self._ratios[worst]
        if ratio is not None and self._is_brief(worst):
            ratio = cap_brief_slowness(ratio, NOTABLE_RANK)
        failed = worst in self._failed
        glyph, style = choose_slowness_mark(ratio, NOTABLE_RANK, failed=failed, ascii=self.ascii)
        if stop != self.cursor:
            return glyph * layout.columns_per_cell, style
        # Without a glyph, reverse video would turn a dark cell into a light one.
        cursor = "@" if self.ascii else "◆"
        return cursor + glyph * (layout.columns_per_cell - 1), f"{style} cursor"

    def _is_brief(self, rank: int) -> bool:
        """Whether a rank with a notable ratio is too briefly slow to be called so."""
        return self._slow is not None and rank not in self._slow

    def _find_worst(self, ranks: range) -> int:
        """Return a failed rank, or the slowest one, or any; the first of equals."""
        return max(ranks, key=self._get_severity) if len(ranks) > 1 else ranks[0]

    def _get_severity(self, rank: int) -> tuple[bool, float]:
        ratio = self._ratios[rank]
        return rank in self._failed, -1.0 if ratio is None else ratio

    def _summarize(self) -> str:
        """Describe the selected rank; without one describe all ranks."""
        if self.cursor is not None:
            return self._describe(self._lay_out().list_ranks_in_cell(self.cursor))
        selected = self._selected
        if selected is not None and not self.has_cells and 0 <= selected < len(self._ratios):
            return self._describe(range(selected, selected + 1))
        return self._summarize_all()

    def _summarize_all(self) -> str:
        """Return the number of ranks, the failed ones, and the message on slow ones."""
        parts = [format_quantity(len(self._ratios), "rank"), self._failed_text, self._note]
        # The parts may have commas themselves.
        return ("; " if self._failed_text else ", ").join(part for part in parts if part)

    def _summarize_failed(self) -> str:
        """Return the number of failed ranks with one of them; empty if none failed."""
        all_ranks = range(len(self._ratios))
        failed_count = sum(rank in self._failed for rank in all_ranks)
        if failed_count == 1:
            return f"1 failed: rank {self._find_worst(all_ranks)}"
        if failed_count:
            return f"{failed_count} failed, such as rank {self._find_worst(all_ranks)}"
        return ""

    def _describe(self, ranks: range) -> str:
        """Describe the selected rank of a cell, or its worst one."""
        selected = self._selected
        rank = self._find_worst(ranks)
        if selected is not None and selected in ranks:
            rank = selected
        ratio = self._ratios[rank]
        parts = [f"rank {rank}"]
        if rank in self._failed:
            parts.append("failed")
        typical = name_typical_rank(range(len(self._ratios)), rank)
        parts.append(_describe_slowness(ratio, typical, is_brief=self._is_brief(rank)))
        if 1 < len(ranks) < len(self._ratios):
            parts.append(f"of ranks {ranks[0]} to {ranks[-1]} in this cell")
        return ", ".join(parts)


def _measure_pieces(pieces: Sequence[Piece]) -> int:
    return sum(cell_width(text) for text, _ in pieces)


def _describe_slowness(ratio: float | None, typical: str, *, is_brief: bool) -> str:
    if ratio is None:
        return "not compared"
    is_brief = is_brief and ratio >= NOTABLE_RANK
    return (describe_brief_ratio if is_brief else describe_ratio)(ratio, typical)
