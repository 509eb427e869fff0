"""External programs: expected output, presets, and the output's reader."""
