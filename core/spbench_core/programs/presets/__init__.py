"""The registry of presets: programs with a known output, by their names in suites."""

from __future__ import annotations

from spbench_core.programs.presets import devices, imb, linpack, nccl, osu, training
from spbench_core.programs.presets.preset import Preset

_PRESETS: tuple[Preset, ...] = (
    *osu.PRESETS,
    *nccl.PRESETS,
    *imb.PRESETS,
    *linpack.PRESETS,
    *devices.PRESETS,
    *training.PRESETS,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}
