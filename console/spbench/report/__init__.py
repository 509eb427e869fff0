"""Reports of runs: their format, comparisons, baselines and output formats."""
