"""Layers and their shapes."""

import pytest

from spbench_core.models.layers import Cell
from spbench_core.models.parts import CellOutput, Identity, MapShape


def test_rejects_an_operation_without_its_pair():
    operations = tuple((0, Identity()) for _ in range(3))
    cell = Cell("cell", (Identity(), Identity()), operations, CellOutput((2,), True))
    with pytest.raises(ValueError, match="zip"):
        cell.output((MapShape(4, 8, 8),))
