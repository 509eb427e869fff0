"""Allreduce algorithms: a module for each family, a function for each algorithm."""
