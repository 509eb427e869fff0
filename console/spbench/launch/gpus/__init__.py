"""GPUs before a launch: the facts and defects of hosts, and the needs of cases."""
