"""Binding of a rank: its number on its host, its cores and its GPU, before MPI starts."""
