"""Fused layers (halo_D2 of MPI4DL): one wide halo exchange for several operators."""
