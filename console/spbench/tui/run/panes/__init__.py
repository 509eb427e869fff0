"""Panes of the Run page: charts, overview, loads of hosts and GPUs, and logs."""
