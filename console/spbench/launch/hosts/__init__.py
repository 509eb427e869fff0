"""Hosts: their names, hostfiles and slots."""
