"""Surveys of hosts: what each has, whether it can be reached, in what they differ."""
