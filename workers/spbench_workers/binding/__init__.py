"""Binding of a rank before MPI starts: its local rank, its cores and its GPU."""
