"""Commands on recorded runs: results, comparisons, reports."""
