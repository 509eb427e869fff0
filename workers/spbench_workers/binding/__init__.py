"""Binding of a rank: its local rank, its cores and its GPU, before MPI starts."""
