"""External programs: their expected output, presets, and the reader of their output."""
