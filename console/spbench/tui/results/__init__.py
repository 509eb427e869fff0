"""The Results page: recorded runs, two of them side by side, plots, export."""
