"""The commands on what was recorded: results, comparisons, reports."""
