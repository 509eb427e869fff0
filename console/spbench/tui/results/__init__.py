"""The Results page: recorded runs, comparisons, plots and export."""
