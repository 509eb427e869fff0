"""Fused layers: one wide halo exchange for several operators."""
