"""The benchmarks: one folder per family, with `entry.py` for the catalog and all that it runs."""
