"""The registry of presets: programs with a known output, by their names in suites."""

from __future__ import annotations

from spbench_core.programs.presets import communication, hardware, osu
from spbench_core.programs.presets.preset import Preset

_PRESETS: tuple[Preset, ...] = (
    *osu.PRESETS,
    *communication.NCCL_TESTS,
    communication.IMB,
    *hardware.PRESETS,
    *communication.EXCHANGE_SCRIPTS,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}
