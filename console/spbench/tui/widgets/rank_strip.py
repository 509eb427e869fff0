"""All ranks at a glance: a cell for each, or for several, darker where it is slower."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.events import MouseMove
from textual.geometry import Offset
from textual.message import Message

from spbench.record.comparison import NOTABLE_RANK
from spbench.report.scale import drop_infinite
from spbench.tui.widgets.chart import Chart
from spbench.tui.widgets.dots import Piece
from spbench.tui.widgets.fitting import join_fitting
from spbench.tui.widgets.keys import key
from spbench.tui.widgets.steps import format_ratio, slowness_mark
from spbench_core.quantities import format_quantity

_WIDEST = 3
"""Cells of the terminal that one rank takes at most, where there are few."""


@dataclass(frozen=True, slots=True)
class CellLayout:
    """The layout of ranks in cells: ``each`` ranks in one, ``wide`` columns of the terminal."""

    ranks: int
    ranks_per_cell: int
    columns_per_cell: int
    cells_per_line: int

    @property
    def count(self) -> int:
        """The number of cells."""
        return -(-self.ranks // self.ranks_per_cell)

    def ranks_in_cell(self, cell: int) -> range:
        """Return the ranks of a cell."""
        return range(cell * self.ranks_per_cell, min((cell + 1) * self.ranks_per_cell, self.ranks))


def lay_out_ranks(ranks: int, width: int, lines: int) -> CellLayout:
    """Return cells for all ranks in so many lines, as wide as a single line allows."""
    width, lines = max(1, width), max(1, lines)
    each = max(1, -(-ranks // (width * lines)))
    wide = max(1, min(_WIDEST, width // max(1, -(-ranks // each))))
    return CellLayout(ranks, each, wide, width // wide)


class RankStrip(Chart):
    """The ranks in order; of several in one cell the worst is shown: failed, then slowest."""

    HELP: ClassVar[str] = (
        "All ranks in order: ░ near the median, ▒ and ▓ slower, █ far slower, ✗ failed,\n"
        "· not compared, ◆ chosen. With many ranks a cell shows the worst of several.\n"
        "Arrows, home, end or a click choose a rank; the last line describes it."
    )
    HEIGHT: ClassVar[int] = 2
    CAN_CLEAR_CURSOR: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        key("ranks.up", "up", "line(-1)", "Up", "The line above"),
        key("ranks.down", "down", "line(1)", "Down", "The line below"),
        key("ranks.choose", "enter", "choose", "Choose", "This rank"),
    ]

    class RankSelected(Message):
        """The reader chose a rank."""

        def __init__(self, strip: RankStrip, rank: int) -> None:
            super().__init__()
            self.strip = strip
            self.rank = rank

        @property
        def control(self) -> RankStrip:
            """The strip."""
            return self.strip

    _ratios: Sequence[float | None] = ()
    _failed: Container[int] = ()
    _selected: int | None = None

    def update(
        self, ratios: Sequence[float | None], failed: Container[int], selected: int | None
    ) -> None:
        """Show the ranks as they are now.

        Args:
            ratios: By rank: its time over the typical rank's; None where it has none.
            failed: The ranks that failed.
            selected: The rank that is looked at elsewhere; the cursor follows it.
        """
        self._ratios = [drop_infinite(ratio) for ratio in ratios]
        self._failed = failed
        self._selected = selected
        self._follow(self._cells())
        self.redraw()

    def count_stops(self) -> int:
        """Return the number of cells."""
        return self._cells().count

    def find_stop(self, at: Offset) -> int | None:
        """Return the cell under the pointer."""
        cells = self._cells()
        column = at.x // cells.columns_per_cell
        stop = at.y * cells.cells_per_line + column
        return stop if column < cells.cells_per_line and 0 <= stop < cells.count else None

    def handle_cursor_move(self) -> None:
        """Choose the worst rank of the cell."""
        if self.cursor is not None:
            self._selected = self._worst(self._cells().ranks_in_cell(self.cursor))
            self.action_choose()

    def action_choose(self) -> None:
        """Choose the rank that the cursor tells about."""
        if self._selected is not None:
            self.redraw()
            self.post_message(self.RankSelected(self, self._selected))

    def action_line(self, way: int) -> None:
        """Move the cursor by a line, where there is one."""
        cells = self._cells()
        at = (self.cursor or 0) + way * cells.cells_per_line
        if 0 <= at < cells.count:
            self.move_to(at)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Tell about the cell under the pointer."""
        at = event.get_content_offset(self)
        stop = None if at is None else self.find_stop(at)
        self.tooltip = None if stop is None else self._about(self._cells().ranks_in_cell(stop))

    def draw(self, width: int, height: int) -> list[list[Piece]]:
        """Return the cells, and below them one line in words where there is room for it."""
        if not self._ratios:
            return [[(join_fitting(["no ranks yet"], width), "none")]]
        cells = self._cells()
        self._follow(cells)
        stops = range(cells.count)
        lines = [
            [self._cell(stop, cells) for stop in stops[start : start + cells.cells_per_line]]
            for start in range(0, len(stops), cells.cells_per_line)
        ]
        if height > 1:
            lines.append([(join_fitting(self._phrases(cells), width), "words")])
        return lines

    def _cells(self) -> CellLayout:
        """Cells for the size of now: the last line is for words."""
        return lay_out_ranks(len(self._ratios), self.size.width, self.size.height - 1)

    def _follow(self, cells: CellLayout) -> None:
        """Put the cursor on the cell of the selected rank."""
        selected = self._selected
        known = selected is not None and 0 <= selected < cells.ranks
        self.cursor = selected // cells.ranks_per_cell if selected is not None and known else None

    def _cell(self, stop: int, cells: CellLayout) -> Piece:
        worst = self._worst(cells.ranks_in_cell(stop))
        ratio = self._ratios[worst]
        failed = worst in self._failed
        glyph, style = slowness_mark(ratio, NOTABLE_RANK, failed=failed, ascii=self.ascii)
        if stop != self.cursor:
            return glyph * cells.columns_per_cell, style
        # Reverse alone would turn a dark glyph into a light one.
        return ("@" if self.ascii else "◆") + glyph * (
            cells.columns_per_cell - 1
        ), f"{style} cursor"

    def _worst(self, ranks: range) -> int:
        """The rank to look at: one that failed, else the slowest, else any; the first of equals."""
        return max(ranks, key=self._badness) if len(ranks) > 1 else ranks[0]

    def _badness(self, rank: int) -> tuple[bool, float]:
        ratio = self._ratios[rank]
        return rank in self._failed, -1.0 if ratio is None else ratio

    def _phrases(self, cells: CellLayout) -> list[str]:
        if self.cursor is not None:
            return [self._about(cells.ranks_in_cell(self.cursor))]
        return [f"{format_quantity(len(self._ratios), 'rank')}, {self._summary()}"]

    def _summary(self) -> str:
        """Return what is to be seen at once: failed ranks, else the slowest if it is slow."""
        everyone = range(len(self._ratios))
        failed = sum(rank in self._failed for rank in everyone)
        if failed:
            example = f"rank {self._worst(everyone)}"
            return (
                f"{failed} failed: {example}"
                if failed == 1
                else f"{failed} failed, such as {example}"
            )
        ratios = [ratio for ratio in self._ratios if ratio is not None]
        if max(ratios, default=0.0) >= NOTABLE_RANK:
            return f"worst: {self._about(everyone)}"
        return "none slow" if ratios else "not compared"

    def _about(self, ranks: range) -> str:
        chosen = self._selected
        rank = chosen if chosen is not None and chosen in ranks else self._worst(ranks)
        ratio = self._ratios[rank]
        words = [f"rank {rank}"]
        if rank in self._failed:
            words.append("failed")
        words.append("not compared" if ratio is None else format_ratio(ratio))
        if 1 < len(ranks) < len(self._ratios):
            words.append(f"of ranks {ranks[0]} to {ranks[-1]} in this cell")
        return ", ".join(words)
