"""Layer profiles by the benchmark ``model.profile``."""
